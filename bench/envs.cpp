// Benchmarks of sandboxes and episodes.
#include <fmt/format.h>
#include <spawn.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <thread>

#include "base/clock.h"
#include "base/random.h"
#include "bench/measure.h"
#include "bench/write_back_bench.h"
#include "envs/backends/backends.h"
#include "envs/backends/choosing_backend.h"
#include "envs/container/container_backend.h"
#include "envs/episodes/demonstration.h"
#include "envs/episodes/episode.h"
#include "envs/sandbox/caching_backend.h"
#include "envs/sandbox/capabilities.h"
#include "envs/sandbox/pool.h"
#include "envs/tasks/workspace/kinds.h"

namespace tandem::bench {

namespace {

// A process that ends at once: what every command costs at least.
Status run_program(std::vector<std::string> words) {
  std::vector<char*> argv;
  for (auto& word : words) argv.push_back(word.data());
  argv.push_back(nullptr);
  pid_t pid = -1;
  if (const int error = ::posix_spawn(&pid, argv[0], nullptr, nullptr, argv.data(), environ); error != 0)
    return Status::from_errno(words[0], error);
  int state = 0;
  if (::waitpid(pid, &state, 0) < 0) return Status::from_errno("waitpid", errno);
  return state == 0 ? Status() : Status::unavailable(words[0] + " does not work here");
}

Status run_command(envs::Sandbox& sandbox) {
  const auto outcome = TRY(sandbox.call("run_terminal_cmd", Json{{"command", "true"}}));
  return outcome.ok ? Status{} : Status::internal("the sandbox refused `true`: " + outcome.output);
}

// One sandbox from its beginning to its end, with one program in it: the least that a sandbox is good for.
Status execute_in_fresh(envs::SandboxBackend& backend) {
  const auto sandbox = TRY(backend.create({}));
  const auto outcome = TRY(exec_in(*sandbox, {.argv = {"true"}}, {}));
  return outcome.exit_code == 0 ? Status{} : Status::internal("`true` did not work: " + outcome.errors);
}

// The same with a call of the terminal tool, a shell whose session is kept.
Status run_in_fresh(envs::SandboxBackend& backend, const envs::SandboxSpec& spec = {}) {
  const auto sandbox = TRY(backend.create(spec));
  return run_command(*sandbox);
}

// How many of them there are in a second, made by several threads at once.
template <typename Work>
Result<double> per_second(double seconds, int threads, const Work& work) {
  const SystemClock clock;
  const Time end = clock.now() + from_seconds(seconds), begin = clock.now();
  std::atomic<int> done{0};
  std::vector<Status> trouble(static_cast<size_t>(threads));
  {
    std::vector<std::jthread> workers;
    for (auto& status : trouble) {
      workers.emplace_back([&] {
        while (status && clock.now() < end) {
          status = work();
          ++done;
        }
      });
    }
  }
  for (const auto& status : trouble) TRY(Status(status));
  return done / to_seconds(clock.now() - begin);
}

// The same by layers, in rounds with sandboxes that begin with nothing: what it takes more is mounting two overlays.
Status add_layers(std::vector<Figure>& figures, const std::string& of, const Settings& settings,
                  envs::SandboxBackend& backend, const envs::Files& content) {
  using Clock = std::chrono::steady_clock;
  const envs::SandboxSpec spec{.sealable = true};
  const auto first = TRY(backend.create(spec));
  TRY(first->put(content));
  const auto sealed = seal(*first);
  if (!sealed) return sealed.error().code() == Code::kUnfit ? Status{} : sealed.error();
  std::vector<double> plain, layered, sealing;
  const auto time = [](std::vector<double>& rounds, const auto& work) -> Status {
    const auto start = Clock::now();
    [[maybe_unused]] const auto result = TRY(work());  // ends after the time is taken
    rounds.push_back(std::chrono::duration<double, std::milli>(Clock::now() - start).count());
    return {};
  };
  auto on_layers = spec;
  on_layers.begins_on = sealed->layers;
  for (const auto end = Clock::now() + std::chrono::duration<double>(settings.seconds); Clock::now() < end;) {
    TRY(time(plain, [&] { return backend.create(spec); }));
    std::unique_ptr<envs::Sandbox> sandbox;
    TRY(time(layered, [&]() -> Result<bool> {
      sandbox = TRY(backend.create(on_layers));
      return true;
    }));
    TRY(time(sealing, [&] { return seal(*sandbox); }));
  }
  const auto median = [](std::vector<double>& rounds) {
    std::sort(rounds.begin(), rounds.end());
    return rounds[rounds.size() / 2];
  };
  figures.push_back({"seal" + of, median(sealing), "ms", 0, ""});
  figures.push_back({"create on layers" + of, median(layered), "ms", 0, ""});
  figures.push_back({"create with nothing, in the same rounds", median(plain), "ms", 0, ""});
  return {};
}

// A branch of an episode: what a sandbox holds, as a value, and a fresh sandbox that begins with it.
Status add_branches(std::vector<Figure>& figures, const Settings& settings, envs::SandboxBackend& backend) {
  for (const int files : {10, 1000}) {
    const auto sandbox = TRY(backend.create({}));
    envs::Files content;
    for (int i = 0; i < files; ++i) content[fmt::format("folder{}/file{}.txt", i % 10, i)] = std::string(2000, 'x');
    const double put = TRY(median_seconds(settings.seconds, [&] { return sandbox->put(content); }));
    const auto snapshot = TRY(snapshot_of(*sandbox));
    const double taken =
        TRY(median_seconds(settings.seconds, [&]() -> Status { return TRY(snapshot_of(*sandbox)), Status{}; }));
    const double begun = TRY(median_seconds(settings.seconds, [&]() -> Status {
      const auto branch = TRY(backend.create({}));
      return restore(*branch, snapshot);
    }));
    const auto of = fmt::format(" of {} files of 2 kB", files);
    figures.push_back({"put" + of, 1e3 * put, "ms", 0, ""});
    figures.push_back({"snapshot" + of, 1e3 * taken, "ms", 0, ""});
    figures.push_back({"create, restore a snapshot" + of + ", destroy", 1e3 * begun, "ms", 0, ""});
    TRY(add_layers(figures, of, settings, backend, content));
  }
  return {};
}

// Linters and searches beside what it takes to know that their files are the same.
Status add_whether_caches_pay(std::vector<Figure>& figures, const Settings& settings, envs::SandboxBackend& backend,
                              envs::SandboxBackend& caching) {
  constexpr int kSearched = 1000, kFileBytes = 2048;
  envs::Files files;
  for (int i = 0; i < kSearched; ++i) {
    auto text = made_up_code(kFileBytes);
    text.resize(kFileBytes);
    files[fmt::format("src/{:02}/file_{:04}.txt", i % 20, i)] = fmt::format("{} {}", i, text);
  }
  files["a.py"] = "import os\n\n\ndef f(x):\n    return x + 1\n";
  const auto add = [&](const std::string& name, const std::string& of, const Json& arguments,
                       envs::Sandbox& sandbox) -> Status {
    const double seconds =
        TRY(median_seconds(settings.seconds, [&]() -> Status { return TRY(sandbox.call(of, arguments)), Status{}; }));
    figures.push_back({"call: " + name, 1e3 * seconds, "ms", 0, ""});
    return {};
  };
  const auto plain = TRY(backend.create({})), kept = TRY(caching.create({}));
  for (auto* sandbox : {plain.get(), kept.get()}) TRY(sandbox->put(files));
  const Json lints = {{"paths", {"a.py"}}}, searched = {{"pattern", "no_such_name_anywhere"}};
  TRY(add("read_lints of a file of Python", "read_lints", lints, *plain));
  TRY(add("read_lints of a file of Python, answered from the cache", "read_lints", lints, *kept));
  TRY(add("grep in 1000 files of 2 KiB", "grep", searched, *plain));
  // As little as a command that looks at all of them can do.
  const Json stats = {{"command", "find . -type f -printf '%p %s %T@ %C@ %i\\n' | sha256sum"}},
             digests = {{"command", "find . -type f -print0 | xargs -0 b2sum | sha256sum"}};
  TRY(add("a digest of the sizes and times of 1000 files", "run_terminal_cmd", stats, *plain));
  TRY(add("a digest of the contents of 1000 files", "run_terminal_cmd", digests, *plain));
  const Json one = {{"command", "b2sum a.py"}};
  return add("a digest of one file", "run_terminal_cmd", one, *plain);
}

}  // namespace

Result<std::vector<Figure>> bench_envs(const Settings& settings) {
  const auto backend = TRY(envs::start_sandboxes());
  std::vector<Figure> figures;
  const auto add = [&](const std::string& name, const auto& work, bool with_tail = false) -> Status {
    const auto rounds = TRY(sorted_rounds(settings.seconds, work));
    figures.push_back({name, 1e3 * rounds[rounds.size() / 2], "ms", 0, ""});
    if (with_tail) figures.push_back({name + ", 99 of 100", 1e3 * rounds[rounds.size() * 99 / 100], "ms", 0, ""});
    return {};
  };
  const auto milliseconds = [&](const auto& work) -> Result<double> {
    return 1e3 * TRY(median_seconds(settings.seconds, work));
  };
  TRY(add("posix_spawn of true, no sandbox", [] { return run_program({"/bin/true"}); }));
  const std::vector<std::string> bubblewrap = {"/usr/bin/bwrap", "--unshare-all", "--ro-bind", "/", "/", "/bin/true"};
  if (run_program(bubblewrap)) TRY(add("bubblewrap --unshare-all: run true", [&] { return run_program(bubblewrap); }));
  TRY(add("sandbox: create and destroy", [&]() -> Status { return TRY(backend->create({})), Status{}; }));
  TRY(add(
      "sandbox: create, execute true, destroy", [&] { return execute_in_fresh(*backend); }, true));
  TRY(add(
      "sandbox: create, run true, destroy", [&] { return run_in_fresh(*backend); }, true));
  if (const auto bubblewrapped = envs::start_sandboxes("", "bubblewrap"); bubblewrapped) {
    TRY(add(
        "sandbox by bubblewrap, our hardening inside: create, run true, destroy",
        [&] { return run_in_fresh(**bubblewrapped); }, true));
  }
  const SystemClock clock;
  {
    envs::SandboxPool pool(*backend, clock, {}, {.least = 8, .most = 8});
    while (pool.counters().ready < 8) ::usleep(1000);
    TRY(add(
        "sandbox of a pool: take, run true, destroy", [&] { return run_in_fresh(pool); }, true));
  }
  if (!settings.image.empty()) {
    const auto containers = TRY(envs::ContainerBackend::start(envs::engine_place("")));
    envs::SandboxSpec spec;
    spec.image = envs::SandboxImage{.name = settings.image};
    TRY(run_in_fresh(*containers, spec));  // the image is prepared once
    TRY(add("sandbox of a container engine: create, run true, destroy",
            [&] { return run_in_fresh(*containers, spec); }));
  }
  const double executed = TRY(per_second(settings.seconds, 4, [&] { return execute_in_fresh(*backend); }));
  figures.push_back({"sandboxes by 4 threads: create, execute true, destroy", executed, "/s", 0, ""});
  const double created = TRY(per_second(settings.seconds, 4, [&] { return run_in_fresh(*backend); }));
  figures.push_back({"sandboxes by 4 threads: create, run true, destroy", created, "/s", 0, ""});
  const auto sandbox = TRY(backend->create({}));
  const double commanded = TRY(milliseconds([&] { return run_command(*sandbox); }));
  figures.push_back({"call: run_terminal_cmd true", commanded, "ms", 0, ""});
  envs::ReadCache cache;
  envs::CachingBackend caching(*backend, cache);
  const auto cached = TRY(caching.create({}));
  const auto read = [&](envs::Sandbox& of) -> Result<double> {
    TRY(of.put({{"notes.txt", "one\ntwo\n"}}));
    return milliseconds([&]() -> Status {
      return TRY(of.call("read_file", Json{{"target_file", "notes.txt"}})), Status{};
    });
  };
  const double reading = TRY(read(*sandbox)), reading_again = TRY(read(*cached));
  figures.push_back({"call: read_file", reading, "ms", 0, ""});
  figures.push_back({"call: read_file, answered from the cache", 1e3 * reading_again, "us", 0, ""});
  TRY(add_whether_caches_pay(figures, settings, *backend, caching));
  const double frozen = TRY(milliseconds([&]() -> Status {
    TRY(freeze(*sandbox));
    return thaw(*sandbox);
  }));
  figures.push_back({"freeze and thaw", frozen, "ms", 0, ""});
  TRY(add_branches(figures, settings, *backend));
  TRY(add_write_backs(figures));
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
