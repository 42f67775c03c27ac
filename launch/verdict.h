// What to do after the end of a run under a scheduler: one rule for every rendered job and the local launcher.
//
//   0                       done
//   75, or SIGTERM, SIGUSR1  interrupted; started again where it stopped, up to `most_restarts` times
//   another signal           crashed; started again, kMostCrashes times
//   anything else            failed (1), wrong config (2), unfit machine (3): starting again would find the same
//
// A run that a person stopped is not started again.
//
// Thread safety: none needed; values.
#pragma once

#include <string>

namespace tandem::launch {

enum class Next : unsigned char { kEnd, kAgain };

struct Verdict {
  Next next = Next::kEnd;
  int exit_code = 0;     // of the launcher, where this is the end
  bool crashed = false;  // to be counted
  std::string words;     // for the log
};

struct History {
  int restarts = 0, crashes = 0;  // before this end
  int most_restarts = 0;
  bool stopped = false;  // by a signal to the launcher
};

// `status` as a shell says it: the exit code, or 128 + N after signal N.
Verdict judge(int status, const History& history);

}  // namespace tandem::launch
