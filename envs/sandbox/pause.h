// Stops all other processes of a sandbox for a while. For its first process, whose own signals reach all of them at
// once.
//
// Thread safety: none.
#pragma once

#include <sys/types.h>

#include <vector>

namespace tandem::envs {

class Pause {
 public:
  // Pauses may overlap; what is started while one lasts runs. What was stopped before stays so afterwards.
  void begin();
  void end();

 private:
  int depth_ = 0;
  std::vector<pid_t> stopped_before_;
};

}  // namespace tandem::envs
