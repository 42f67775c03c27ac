#include "envs/episodes/test_runs.h"

#include <algorithm>
#include <cmath>

#include "base/clock.h"
#include "envs/tasks/test_report.h"
#include "envs/tasks/verifier.h"

namespace tandem::envs {

Result<TestRun> run_tests(const Place& place, const std::string& command, SandboxBackend& backend, double seconds) {
  const CheckCommand whole = {.command = command, .seconds = seconds, .any_exit = true};
  const SystemClock clock;
  const Time start = clock.now();
  const auto runner = sandbox_runner(backend, seconds, {});
  const auto outcomes = TRY(runner(place, {&whole, 1}));
  TestRun run{.passed = {},
              .output = outcomes.at(0).output,
              .exit_code = outcomes.at(0).exit_code,
              .is_out_of_time = is_out_of_time(outcomes.at(0)),
              .seconds = to_seconds(clock.now() - start)};
  if (run.exit_code >= 124) return run;  // killed, or its time was up
  for (const auto& [name, end] : read_test_report(run.output)) {
    if (end == TestEnd::kPassed) run.passed.insert(name);
  }
  return run;
}

double seconds_for_tests(double slowest) {
  constexpr double kLeastSeconds = 10;
  constexpr double kSlower = 4;  // that a machine in use may be than it was when they ran first
  return std::min(kMostTestSeconds, std::max(kLeastSeconds, std::ceil(kSlower * slowest)));
}

std::string end_of_output(const std::string& output) {
  constexpr size_t kMost = 1000;
  return output.substr(output.size() - std::min(output.size(), kMost));
}

}  // namespace tandem::envs
