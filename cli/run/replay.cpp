// `tandem replay`: a recorded step, or the logprobs of an episode, computed again from what the run keeps.
#include "trainer/replay.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <cmath>
#include <map>
#include <set>
#include <thread>

#include "base/json_line.h"
#include "cli/command.h"
#include "cli/progress_line.h"
#include "dashboard/run_files.h"
#include "kernels/lm_head.h"
#include "rollout/books/ledger_log.h"
#include "run/config_history.h"
#include "run/devices.h"
#include "run/resume.h"
#include "trainer/learn/checkpoints.h"

namespace tandem::cli {
namespace {

using trainer::Replay;

struct ReplayOptions {
  std::string run;
  uint64_t step = 0, episode = 0;
  bool json = false;
  int threads = 0;
};

// What a replay reads of a run.
struct Recorded {
  run::RunConfig config;
  run::ConfigHistory configs;
  rollout::Ledger ledger;
  std::map<uint64_t, Json> steps;  // lines of metrics.jsonl; the last of each step
};

Result<Recorded> read_recorded_run(const fs::path& run_dir) {
  TRY(dashboard::check_run_directory(run_dir));
  auto config = TRY(run::read_resolved(run_dir));
  auto ledger = TRY(rollout::read_books(run_dir, [&] { return run::plan_of(config, run_dir); }));
  auto configs = TRY(run::ConfigHistory::read(run_dir, config));
  Recorded recorded{
      .config = std::move(config), .configs = std::move(configs), .ledger = std::move(ledger), .steps = {}};
  for (Json& line : TRY(dashboard::read_metrics(run_dir))) {
    if (!line.contains("step") || !line["step"].is_number_unsigned()) continue;
    const auto step = line["step"].get<uint64_t>();
    recorded.steps[step] = std::move(line);
  }
  return recorded;
}

// As `step` was trained.
Result<trainer::ReplaySettings> settings_of(const ReplayOptions& options, const Recorded& recorded, uint64_t step) {
  const auto config = TRY(recorded.configs.of_step(step));
  const auto algorithm = TRY(run::algorithm_of(config));
  const int cores = std::max(1, static_cast<int>(std::thread::hardware_concurrency()));
  const auto format = TRY(model::weight_format_named(config.model.weights));
  const auto optimizer = TRY(run::optimizer_of(config));
  const auto devices = TRY(run::devices_of(recorded.config));
  return trainer::ReplaySettings{
      .run_dir = options.run,
      .model = fs::path(options.run) / "model",
      .format = format,
      .optimizer = optimizer,
      .algorithm = algorithm,
      .teacher = algorithm.teacher.path.empty() ? fs::path() : fs::path(options.run) / "teacher",
      .place = {.device = devices.trainer, .threads = options.threads > 0 ? options.threads : cores}};
}

// Whether the steps behind `from` can be taken again up to `version`.
Status check_way(uint64_t from, uint64_t version, const Recorded& recorded) {
  for (uint64_t step = from + 1; step <= version; ++step) {
    if (const std::string words = recorded.configs.difference(step, version); !words.empty())
      return Status::not_found(fmt::format("the checkpoint between is not kept, and {}", words))
          .hint("trainer.keep_checkpoints=all keeps every checkpoint");
    if (recorded.ledger.batch(step) == nullptr)
      return Status::corrupt(fmt::format("the log has no batch of step {}", step));
  }
  return {};
}

// Up to `version`, with the steps on the way; `last` gets the last of them.
Status go_to(Replay& replay, uint64_t version, const Recorded& recorded, Replay::Step* last = nullptr) {
  TRY(check_way(replay.version(), version, recorded));
  ProgressLine progress;
  const uint64_t first = replay.version();
  while (replay.version() < version) {
    const uint64_t step = replay.version() + 1;
    if (version - first > 1) progress.show(fmt::format("step {} ({} of {})", step, step - first, version - first));
    auto taken = replay.next(*recorded.ledger.batch(step));
    if (!taken) return std::move(taken).error();
    // What the run itself could not read was trained without it, and the line of the step says so.
    const auto line = recorded.steps.find(step);
    const size_t known = line == recorded.steps.end() ? 0 : line->second.value("missing", Json::array()).size();
    if (taken->missing.size() > known)
      return Status::not_found(fmt::format("{} trajectories of step {} cannot be read", taken->missing.size(), step))
          .hint("`tandem episodes RUN` says which episodes have tokens");
    if (last != nullptr) *last = std::move(*taken);
  }
  return {};
}

// What differs first, in words; empty: nothing.
struct Comparison {
  bool weights_equal = false;
  std::string difference;
};

Result<Comparison> compare(Replay& replay, const Json& line, const Replay::Step& step) {
  Comparison result;
  const auto differs = [&](const char* name, double now) -> std::string {
    const double then = line.value(name, std::nan(""));
    return now == then ? "" : fmt::format("{} is {}, and was {}", name, now, then);
  };
  const std::string digest = trainer::digest_of_version(replay.learner()).hex();
  const std::string recorded = line.value("weights_digest", "");
  const auto of_checkpoint = TRY(replay.difference_from_checkpoint());
  result.weights_equal = (recorded.empty() || recorded == digest) && !of_checkpoint;
  for (std::string words :
       {differs("loss", step.metrics.loss), differs("grad_norm", step.metrics.grad_norm), of_checkpoint.value_or(""),
        recorded.empty() || recorded == digest
            ? std::string()
            : fmt::format("the digest of the weights is {}, and was {}", digest, recorded)}) {
    if (result.difference.empty()) result.difference = std::move(words);
  }
  return result;
}

std::string kept_checkpoints_of(const fs::path& run_dir);

// A checkpoint that cannot be read is named, with what is kept beside it.
Result<Replay> open_replay(trainer::ReplaySettings settings, uint64_t version) {
  const fs::path run_dir = settings.run_dir;
  auto replay = Replay::open(std::move(settings), version);
  if (replay || !replay.error().hint().empty()) return replay;
  const bool is_named = replay.error().message().find("checkpoints") != std::string::npos;
  Status status = is_named ? std::move(replay).error()
                           : Status::corrupt(replay.error().message())
                                 .at(fmt::format("the checkpoint of {} before step {}", run_dir.string(), version + 1));
  return fail(std::move(status).hint(
      fmt::format("the run keeps {}; a step after another one can be replayed", kept_checkpoints_of(run_dir))));
}

std::string kept_checkpoints_of(const fs::path& run_dir) {
  std::vector<uint64_t> steps;
  for (const auto& [step, folder] : trainer::checkpoints_of(run_dir)) steps.push_back(step);
  return steps.empty() ? "none" : fmt::format("{}", fmt::join(steps, ", "));
}

Result<int> replay_step(const ReplayOptions& options) {
  const Recorded recorded = TRY(read_recorded_run(options.run));
  const auto line = recorded.steps.find(options.step);
  if (options.step < 1 || line == recorded.steps.end() || recorded.ledger.batch(options.step) == nullptr) {
    return fail(Status::invalid(
                    fmt::format("no step {} was trained; there are {}", options.step, recorded.ledger.steps_trained()))
                    .at(options.run));
  }
  auto replay = TRY(open_replay(TRY(settings_of(options, recorded, options.step)), options.step - 1));
  const uint64_t from = replay.version();
  TRY(check_way(from, options.step, recorded));
  if (from < options.step - 1)
    fmt::print(stderr, "from version {}, the nearest that is kept ({}); trainer.keep_checkpoints=all keeps every one\n",
               from, kept_checkpoints_of(options.run));
  Replay::Step step;
  TRY(go_to(replay, options.step, recorded, &step));
  const auto comparison = TRY(compare(replay, line->second, step));
  const Json result = {{"step", options.step},
                       {"episodes", step.episodes},
                       {"loss_recorded", line->second.value("loss", Json())},
                       {"loss", step.metrics.loss},
                       {"grad_norm_recorded", line->second.value("grad_norm", Json())},
                       {"grad_norm", step.metrics.grad_norm},
                       {"weights_equal", comparison.weights_equal},
                       {"from_version", from},
                       {"difference", comparison.difference.empty() ? Json() : Json(comparison.difference)}};
  const bool same = comparison.difference.empty();
  if (options.json) {
    fmt::print("{}\n", dump_json_line(result));
  } else {
    fmt::print("step {}, {} episodes\n", options.step, step.episodes);
    fmt::print("  loss       {}   recorded {}\n", dump_json(result["loss"]), dump_json(result["loss_recorded"]));
    fmt::print("  grad norm  {}   recorded {}\n", dump_json(result["grad_norm"]),
               dump_json(result["grad_norm_recorded"]));
    fmt::print("  weights    {}\n", comparison.weights_equal ? "the same" : "others");
  }
  if (!same) fmt::print(stderr, "tandem replay: step {}: {}\n", options.step, comparison.difference);
  return same ? kDone : kFailed;
}

// As the books have it; nothing where it was not admitted.
Result<std::optional<rollout::EpisodeRecord>> record_of(const ReplayOptions& options, const Recorded& recorded) {
  std::optional<rollout::EpisodeRecord> found;
  TRY(rollout::read_episodes(
      options.run, [&] { return run::plan_of(recorded.config, options.run); },
      [&](const rollout::EpisodeRecord& record) {
        if (record.episode == options.episode) found = record;
        return Status();
      }));
  return found;
}

// The last attempt of it whose tokens are there.
Result<rollout::Trajectory> trajectory_of(const ReplayOptions& options,
                                          const std::optional<rollout::EpisodeRecord>& record) {
  const fs::path folder = fs::path(options.run) / "trajectories";
  const auto store = TRY(rollout::TrajectoryStore::open_to_read(folder));
  for (uint32_t attempt = 64; attempt-- > 0;) {
    const rollout::EpisodeKey key{options.episode, attempt};
    if (store.contains(key)) return store.read(key);
  }
  // What the model ended is told to the books only once its tokens are stored.
  const bool is_lost = record && record->commit && rollout::is_of_policy(record->commit->outcome);
  if (is_lost) {
    const fs::path log = folder / "episodes.log";
    const std::string reason = fs::exists(log) ? "its record is damaged or was cut off" : "the file is not there";
    return fail(Status::not_found(fmt::format("the trajectory of episode {} is lost: {}", options.episode, reason))
                    .at(log.string()));
  }
  return fail(Status::invalid(fmt::format("episode {} has no tokens; it was not admitted, not sampled, or dropped",
                                          options.episode))
                  .at(options.run)
                  .hint(fmt::format("`tandem episodes {}` lists all", options.run)));
}

Result<int> replay_episode(const ReplayOptions& options) {
  const Recorded recorded = TRY(read_recorded_run(options.run));
  const auto record = TRY(record_of(options, recorded));
  const auto trajectory = TRY(trajectory_of(options, record));
  std::set<uint64_t> versions;
  size_t tokens = 0;
  for (size_t i = 1; i < trajectory.tokens.size(); ++i) {
    if (!trajectory.sampled[i]) continue;
    versions.insert(trajectory.versions[i]);
    ++tokens;
  }
  const float temperature = record ? record->temperature : 1;
  std::vector<float> logprobs(trajectory.tokens.size(), std::nanf(""));
  std::optional<Replay> replay;
  for (const uint64_t version : versions) {
    if (!replay || !recorded.configs.difference(replay->version(), version).empty())
      replay = TRY(Replay::open(TRY(settings_of(options, recorded, version)), version));
    TRY(go_to(*replay, version, recorded));
    const auto of_version = TRY(replay->logprobs(trajectory, kernels::logit_scale_at(temperature)));
    for (size_t i = 0; i < logprobs.size(); ++i)
      if (!std::isnan(of_version[i])) logprobs[i] = of_version[i];
  }
  Json result = {{"episode", options.episode},
                 {"attempt", trajectory.key.attempt},
                 {"tokens", tokens},
                 {"versions", versions},
                 {"equal", true},
                 {"difference", nullptr}};
  for (size_t i = 1; i < logprobs.size(); ++i) {
    if (!trajectory.sampled[i] || logprobs[i] == trajectory.logprobs[i]) continue;
    result["equal"] = false;
    result["difference"] = {{"position", i},
                            {"token", trajectory.tokens[i]},
                            {"version", trajectory.versions[i]},
                            {"logprob_recorded", trajectory.logprobs[i]},
                            {"logprob", logprobs[i]}};
    break;
  }
  const bool equal = result["equal"].get<bool>();
  if (options.json)
    fmt::print("{}\n", dump_json_line(result));
  else
    fmt::print("episode {}, attempt {}: {} sampled tokens of versions {}: {}\n", options.episode,
               trajectory.key.attempt, tokens, fmt::join(versions, ", "),
               equal ? "the same logprobs" : "other logprobs");
  if (equal) return kDone;
  const Json& at = result["difference"];
  fmt::print(stderr, "tandem replay: token {} at position {}: its logprob is {}, and was {}\n", dump_json(at["token"]),
             dump_json(at["position"]), dump_json(at["logprob"]), dump_json(at["logprob_recorded"]));
  if (const auto here = replay->learner().numerics_id(); here != trajectory.numerics_id)
    fmt::print(stderr, "tandem replay: it was sampled by other kernels: {}; here they are {}\n", trajectory.numerics_id,
               here);
  return kFailed;
}

// 1 says that the bits are others; what could not be compared has another code.
int refused(const ReplayOptions& options, bool is_step, const Status& status) {
  if (options.json)
    fmt::print("{}\n", dump_json_line(Json{{is_step ? "step" : "episode", is_step ? options.step : options.episode},
                                           {"refused", status.to_string()}}));
  fmt::print(stderr, "tandem replay: {}\n", status.to_string());
  if (status.code() == Code::kInvalid) return kUsage;
  return status.code() == Code::kUnfit ? kUnfit : kIncomplete;
}

}  // namespace

Action add_replay(CLI::App& command) {
  const auto options = std::make_shared<ReplayOptions>();
  command.add_option("RUN", options->run, "The run directory; nothing is written to it")->required();
  auto* step = command.add_option("--step", options->step, "The step to train again, counted from 1");
  auto* episode = command.add_option("--episode", options->episode, "Compute the logprobs of this episode again");
  step->excludes(episode);
  command.add_flag("--json", options->json, "One JSON object");
  command.add_option("--threads", options->threads, "0: all cores; their number changes no bit")
      ->check(CLI::Range(0, 1024))
      ->capture_default_str();
  command.footer(
      "Begins at the newest checkpoint before the step, or at the model, and takes the steps in between again. Values\n"
      "that --resume has changed between that checkpoint and the step cannot be followed: the checkpoint where they\n"
      "changed must be kept.\n\n"
      "Exit code 0 where all is the same to the bit, 1 where not: the first difference is named. 2: there is no such\n"
      "step or episode; 3: this machine lacks what is needed; 5: it cannot be replayed, since a checkpoint or a\n"
      "trajectory is not there any more, or is damaged. With --json the reason of 2, 3 and 5 is \"refused\".\n\n"
      "Examples:\n"
      "  tandem replay runs/tiny-1 --step 12\n"
      "  tandem replay runs/tiny-1 --step 12 --json | jq .weights_equal\n"
      "  tandem replay runs/tiny-1 --episode 40");
  return [options, step, episode]() -> Result<int> {
    const bool is_step = step->count() > 0;
    if (is_step || episode->count() > 0) {
      const auto outcome = is_step ? replay_step(*options) : replay_episode(*options);
      return outcome ? *outcome : refused(*options, is_step, outcome.error());
    }
    return fail(Status::invalid("what is to be replayed? --step N or --episode N says it"));
  };
}

}  // namespace tandem::cli
