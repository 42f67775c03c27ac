// Exit codes of the program, stable for scripts and schedulers.
#pragma once

namespace tandem {

enum ExitCode {
  kDone = 0,
  kFailed = 1,
  kUsage = 2,         // usage or config
  kUnfit = 3,         // this machine lacks what is needed
  kRegression = 4,    // an eval got worse
  kIncomplete = 5,    // incomplete, or too many errors
  kDamaged = 6,       // of a role: files of its run are not what was written
  kInterrupted = 75,  // stopped with a good checkpoint: run again
};

}  // namespace tandem
