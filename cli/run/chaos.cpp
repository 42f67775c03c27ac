// `tandem chaos`: a run under faults, and whether anything was lost, doubled or hung.
#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <cstdio>

#include "base/json_line.h"
#include "chaos/recount.h"
#include "chaos/trial.h"
#include "cli/command.h"
#include "cli/interrupt.h"
#include "cli/progress_line.h"
#include "cli/run/run_dir.h"

namespace tandem::cli {
namespace {

using chaos::Kind;

struct ChaosOptions {
  std::string config, folder;
  int faults = 20;
  uint64_t seed = 0;
  std::vector<std::string> kinds = chaos::kind_names(), overrides;
  double every = 2, hang = 180;
  bool json = false;
};

// The outcome of all rounds.
struct Outcome {
  std::map<Kind, int> faults;
  std::vector<double> detected;
  chaos::Recount books;
  int hung = 0, exit = 0, rounds = 0, undetected = 0;
  int all_faults() const {
    int all = 0;
    for (const auto& [kind, count] : faults) all += count;
    return all;
  }
  void add(const chaos::TrialResult& trial, const chaos::Recount& counted) {
    ++rounds;
    for (const auto& [kind, count] : trial.faults) faults[kind] += count;
    detected.insert(detected.end(), trial.detected_seconds.begin(), trial.detected_seconds.end());
    undetected += trial.undetected;
    hung += trial.hung;
    if (exit == 0) exit = trial.exit;
    books.admitted += counted.admitted;
    books.trained += counted.trained;
    books.dropped += counted.dropped;
    books.in_flight += counted.in_flight;
    books.lost += counted.lost;
    books.duplicated += counted.duplicated;
    books.findings.insert(books.findings.end(), counted.findings.begin(), counted.findings.end());
  }
  bool is_well() const { return exit == 0 && hung == 0 && books.lost == 0 && books.duplicated == 0; }
};

double quantile(std::vector<double> values, double q) {
  std::ranges::sort(values);
  return values[std::min(values.size() - 1, static_cast<size_t>(q * static_cast<double>(values.size())))];
}

Json to_json(const Outcome& outcome) {
  Json faults = Json::object();
  for (const auto& [kind, count] : outcome.faults) faults[std::string(to_string(kind))] = count;
  Json detected = {{"p50", nullptr}, {"p99", nullptr}};
  if (!outcome.detected.empty())
    detected = {{"p50", quantile(outcome.detected, 0.5)}, {"p99", quantile(outcome.detected, 0.99)}};
  return {{"faults", faults},
          {"detected_seconds", detected},
          {"lost", outcome.books.lost},
          {"duplicated", outcome.books.duplicated},
          {"hung", outcome.hung},
          {"exit", outcome.exit},
          {"books", chaos::to_json(outcome.books)},
          {"unnoticed", outcome.undetected},
          {"rounds", outcome.rounds}};
}

// The last lines of a file.
std::string end_of(const fs::path& path) {
  constexpr size_t kMost = 1000;
  std::string text = read_file(path).value_or("");
  if (text.size() > kMost) text = text.substr(text.find('\n', text.size() - kMost) + 1);
  return text;
}

void print(const Outcome& outcome) {
  fmt::print("faults");
  for (const auto& [kind, count] : outcome.faults) fmt::print("  {} {}", to_string(kind), count);
  fmt::print("\n");
  if (!outcome.detected.empty())
    fmt::print("noticed after {:.1f} s (median), {:.1f} s (99 %)\n", quantile(outcome.detected, 0.5),
               quantile(outcome.detected, 0.99));
  fmt::print("lost {}, duplicated {}, hung {}, exit code of the run {}\n", outcome.books.lost, outcome.books.duplicated,
             outcome.hung, outcome.exit);
  fmt::print("episodes: {} admitted = {} trained + {} dropped + {} in flight\n", outcome.books.admitted,
             outcome.books.trained, outcome.books.dropped, outcome.books.in_flight);
}

std::vector<std::string> arguments_of(const ChaosOptions& options, const fs::path& run_dir, uint64_t round) {
  std::vector<std::string> arguments = {"run", options.config, "--run-dir", run_dir.string()};
  const auto given = [&](std::string_view key) {
    return std::ranges::any_of(options.overrides, [&](const std::string& o) { return o.starts_with(key); });
  };
  // A run that loses its trainer more often than it saves would not end.
  if (!given("run.max_restarts=")) arguments.emplace_back("run.max_restarts=1000000");
  if (!given("trainer.checkpoint_every=")) arguments.emplace_back("trainer.checkpoint_every=1");
  if (!given("run.seed=") && round > 0) arguments.push_back(fmt::format("run.seed={}", round));
  arguments.insert(arguments.end(), options.overrides.begin(), options.overrides.end());
  return arguments;
}

Result<int> run(const ChaosOptions& options) {
  std::vector<Kind> kinds;
  for (const std::string& name : options.kinds) kinds.push_back(TRY(chaos::kind_named(name)));
  if (!std::isfinite(options.every) || !std::isfinite(options.hang))
    return fail(Status::invalid("--every and --hang are numbers of seconds"));
  if (!fs::exists(options.config))
    return fail(Status::invalid("there is no such file").at(options.config).hint("name the config of a run"));
  const auto interrupt = TRY(Interrupt::listen());
  const SystemClock clock;
  const fs::path folder = options.folder.empty() ? free_run_dir("runs", "chaos") : fs::path(options.folder);
  TRY(make_directories(folder));
  chaos::Schedule schedule(options.seed, kinds, options.every);
  ProgressLine progress;
  Outcome outcome;
  while (outcome.all_faults() < options.faults && !interrupt->requested()) {
    const fs::path run_dir = folder / fmt::format("run-{}", outcome.rounds + 1);
    if (fs::exists(run_dir))
      return fail(Status::invalid("is there already").at(run_dir.string()).hint("choose another --dir"));
    const int before = outcome.all_faults();
    auto trial = TRY(chaos::Trial::begin({.run_dir = run_dir,
                                          .arguments = arguments_of(options, run_dir, outcome.rounds),
                                          .faults = options.faults - before,
                                          .hang_seconds = options.hang,
                                          .events = folder / "faults.jsonl",
                                          .round = outcome.rounds + 1},
                                         clock));
    const auto result = TRY(trial.run(
        schedule, [&] { return interrupt->requested(); }, [&](const std::string& text) { progress.show(text); }));
    if (!fs::exists(run_dir / "config.resolved.json") || result.exit == kUsage || result.exit == kUnfit) {
      progress.wipe();
      return fail(Status::invalid(fmt::format("the run did not begin, with exit code {}; it said\n{}", result.exit,
                                              end_of(run_dir.string() + ".log")))
                      .at(run_dir.string() + ".log"));
    }
    outcome.add(result, TRY(chaos::recount(run_dir)));
    if (result.exit != 0 || result.hung) break;
    if (outcome.all_faults() == before)
      return fail(
          Status::invalid("the run was over before its first fault").hint("more run.steps, or a smaller --every"));
  }
  progress.wipe();
  for (size_t i = 0; i < std::min<size_t>(outcome.books.findings.size(), 20); ++i)
    fmt::print(stderr, "tandem chaos: {}\n", outcome.books.findings[i]);
  if (outcome.undetected > 0)
    fmt::print(stderr,
               "tandem chaos: {} stopped or ended processes were not noticed before they went on or the run was over\n",
               outcome.undetected);
  if (!outcome.is_well())
    fmt::print(stderr, "tandem chaos: the runs and their logs are in {}, the faults in its faults.jsonl\n",
               folder.string());
  if (options.json)
    fmt::print("{}\n", dump_json_line(to_json(outcome)));
  else
    print(outcome);
  if (interrupt->requested()) return kInterrupted;
  return outcome.is_well() ? kDone : kFailed;
}

}  // namespace

Action add_chaos(CLI::App& command) {
  const auto options = std::make_shared<ChaosOptions>();
  command.add_option("CONFIG", options->config, "Config of a run, as for `tandem run`")->required();
  command.add_option("overrides", options->overrides, "key=value, over the file's");
  command.add_option("--faults", options->faults, "How many, over as many runs as it takes")
      ->check(CLI::Range(1, 1000000));
  command.add_option("--seed", options->seed, "Of which faults there are, and when");
  command
      .add_option("--kinds", options->kinds,
                  "Of faults: kill and stop of a process; drop, delay, duplicate, corrupt of a message; disk, on which "
                  "nothing can be written for 3 s")
      ->delimiter(',')
      ->allow_extra_args(false)
      ->type_name("KIND,...");
  command.add_option("--every", options->every, "Seconds between faults, on average")->check(CLI::Range(0.01, 3600.0));
  command.add_option("--hang", options->hang, "Seconds without progress after which a run is hung")
      ->check(CLI::Range(10.0, 86400.0));
  command.add_option(
      "--dir", options->folder,
      "Folder of the runs, and of faults.jsonl, which says what was done to whom, and when it was noticed "
      "(default: one in runs/)");
  command.add_flag("--json", options->json, "One JSON object");
  command.footer(
      "It sets run.max_restarts=1000000 and trainer.checkpoint_every=1 unless they are given.\n"
      "Exit code 0: nothing was lost, doubled or hung, and the run ended well; 1: something was.\n\n"
      "Examples:\n"
      "  tandem chaos configs/tiny.yaml --faults 20\n"
      "  tandem chaos configs/tiny.yaml --faults 100 --seed 7 --kinds kill,stop --json rollout.workers=2");
  return [options] { return run(*options); };
}

}  // namespace tandem::cli
