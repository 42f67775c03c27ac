#include <fmt/format.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/random.h"
#include "bench/measure.h"
#include "envs/demonstration.h"
#include "envs/episode.h"
#include "envs/sandbox/namespace_backend.h"

namespace tandem::bench {

namespace {

// A process that ends at once: what every command costs at least.
Status run_true() {
  const pid_t pid = ::fork();
  if (pid < 0) return Status::from_errno("fork", errno);
  if (pid == 0) {
    ::execl("/bin/true", "true", nullptr);
    ::_exit(127);
  }
  int state = 0;
  if (::waitpid(pid, &state, 0) < 0) return Status::from_errno("waitpid", errno);
  return {};
}

Status run_command(envs::Sandbox& sandbox) {
  const auto outcome = TRY(sandbox.call("run_terminal_cmd", Json{{"command", "true"}}));
  return outcome.ok ? Status{} : Status::internal("the sandbox refused `true`: " + outcome.output);
}

}  // namespace

Result<std::vector<Figure>> bench_envs(const Settings& settings) {
  const auto backend = TRY(envs::NamespaceBackend::start());
  const auto milliseconds = [&](const auto& work) -> Result<double> {
    return 1e3 * TRY(median_seconds(settings.seconds, work));
  };
  std::vector<Figure> figures;
  figures.push_back({"fork and exec of true, no sandbox", TRY(milliseconds(run_true)), "ms", 0, ""});
  figures.push_back({"sandbox: create and destroy",
                     TRY(milliseconds([&]() -> Status { return TRY(backend->create({})), Status{}; })), "ms", 0, ""});
  figures.push_back({"sandbox: create, run true, destroy", TRY(milliseconds([&]() -> Status {
                       const auto sandbox = TRY(backend->create({}));
                       return run_command(*sandbox);
                     })),
                     "ms", 0, ""});
  const auto sandbox = TRY(backend->create({}));
  figures.push_back(
      {"call: run_terminal_cmd true", TRY(milliseconds([&] { return run_command(*sandbox); })), "ms", 0, ""});
  TRY(sandbox->put({{"notes.txt", "one\ntwo\n"}}));
  figures.push_back({"call: read_file", TRY(milliseconds([&]() -> Status {
                       return TRY(sandbox->call("read_file", Json{{"target_file", "notes.txt"}})), Status{};
                     })),
                     "ms", 0, ""});
  uint64_t seed = 0;
  const double episode = TRY(median_seconds(settings.seconds, [&]() -> Status {
    Random random(++seed);
    const auto task = TRY(envs::make_task({"set", envs::Split::kTrain, seed}));
    return TRY(envs::demonstrate(task, random, {}, *backend)), Status{};
  }));
  figures.push_back({"whole episodes of `set` by an oracle", 1 / episode, "/s", 0, ""});
  return figures;
}

}  // namespace tandem::bench
