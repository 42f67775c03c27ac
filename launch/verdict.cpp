#include "launch/verdict.h"

#include <fmt/format.h>

#include <csignal>

#include "base/exit_code.h"
#include "launch/job.h"

namespace tandem::launch {

Verdict judge(int status, const History& history) {
  // Before `tandem run` has seen to signals they end it as they end any program: nothing has been done then.
  const bool interrupted = status == kInterrupted || status == 128 + SIGTERM || status == 128 + SIGUSR1;
  const bool crashed = status > 128 && !interrupted;
  if (status == kDone) return {.words = "done"};
  const int code = interrupted ? kInterrupted : status;
  if (history.stopped) return {.exit_code = code, .words = "stopped"};
  if (interrupted) {
    if (history.restarts >= history.most_restarts)
      return {.exit_code = code,
              .words = fmt::format("interrupted, and started again {} times already", history.restarts)};
    return {.next = Next::kAgain, .exit_code = code, .words = "interrupted; starting it again"};
  }
  if (crashed) {
    const std::string how = fmt::format("ended by signal {}", status - 128);
    if (history.crashes >= kMostCrashes)
      return {.exit_code = code,
              .crashed = true,
              .words = fmt::format("{}, after {} crashes before", how, history.crashes)};
    return {.next = Next::kAgain, .exit_code = code, .crashed = true, .words = how + "; starting it again"};
  }
  const char* const words = status == kUsage   ? "its config is wrong"
                            : status == kUnfit ? "this machine lacks what it needs"
                                               : "failed";
  return {.exit_code = code, .words = words};
}

}  // namespace tandem::launch
