// How far a long command is: on a terminal one line drawn over and over, elsewhere a line now and then.
//
// Thread safety: none.
#pragma once

#include <string>

#include "base/clock.h"

namespace tandem::cli {

class ProgressLine {
 public:
  ProgressLine();
  ~ProgressLine() { wipe(); }
  ProgressLine(const ProgressLine&) = delete;

  // Shows the text and the time since the beginning, where it is time for it again.
  void show(const std::string& text);
  void wipe() const;
  double seconds() const { return to_seconds(clock_.now() - started_); }

 private:
  SystemClock clock_;
  bool tty_;
  Time started_, next_{};
};

}  // namespace tandem::cli
