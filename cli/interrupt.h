// Ctrl-C as something to wait for: the first SIGINT or SIGTERM asks to stop, a second one ends the process at once.
//
// Thread safety: one at a time in a process.
#pragma once

#include <memory>
#include <stop_token>
#include <thread>

#include "base/file.h"

namespace tandem::cli {

class Interrupt {
 public:
  static Result<std::unique_ptr<Interrupt>> listen();
  ~Interrupt();

  std::stop_token token() const { return source_.get_token(); }
  bool requested() const { return source_.stop_requested(); }

 private:
  explicit Interrupt(FileDescriptor wake);
  FileDescriptor wake_;
  std::stop_source source_;
  std::jthread waiting_;
};

}  // namespace tandem::cli
