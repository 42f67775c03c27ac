#include "cli/run/stop_signals.h"

#include <unistd.h>

#include <atomic>
#include <csignal>

#include "base/exit_code.h"

namespace tandem::cli {
namespace {

std::atomic<bool> run_has_begun{false};
std::atomic<int> from_scheduler{0}, from_person{0};

void note_stop_signal(int number) {
  if (!run_has_begun) {
    constexpr char kWords[] = "tandem run: asked to end before the run began; --resume-or-start begins it\n";
    (void)!::write(STDERR_FILENO, kWords, sizeof kWords - 1);
    ::_exit(kInterrupted);
  }
  ++(number == SIGINT ? from_person : from_scheduler);
}

bool take(std::atomic<int>& count) {
  if (count == 0) return false;
  --count;
  return true;
}

}  // namespace

void end_on_signals() {
  for (const int number : {SIGINT, SIGTERM, SIGUSR1}) std::signal(number, note_stop_signal);
}

void keep_signals() { run_has_begun = true; }

std::optional<run::Supervision::Interrupted> next_interrupt() {
  using By = run::Supervision::Interrupted::By;
  if (take(from_scheduler)) return run::Supervision::Interrupted{By::kScheduler};
  if (take(from_person)) return run::Supervision::Interrupted{By::kPerson};
  return {};
}

}  // namespace tandem::cli
