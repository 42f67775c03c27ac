#include "cli/sft/sft_transcripts.h"

#include <fmt/format.h>
#include <unistd.h>

#include <chrono>

#include "cli/command.h"
#include "cli/interrupt.h"
#include "cli/sft/sft_data.h"
#include "cli/sft/sft_view.h"
#include "run/checks.h"

namespace tandem::cli {

namespace {

constexpr const char *kConfigFile = "config.resolved.json", *kEndedConfigFile = "config.json";

// What may be another when a training goes on: the result is the same with any of them.
bool may_change(const std::string& path) { return path == "threads" || path == "trainer.checkpoint_every"; }

// The config of a training that is gone on with must be the one that it began with.
Status check_same_config(const fs::path& folder, const Schema& schema, const char* file = kConfigFile) {
  const Json before = TRY(parse_json(TRY(read_file(folder / file, 1 << 20))));
  SftConfig old_config;
  Schema old = schema_of(old_config);
  TRY(old.apply_resolved(before));
  std::string changed;
  for (size_t i = 0; i < schema.fields().size(); ++i) {
    const Field& now = schema.fields()[i];
    const Json was = old.fields()[i].get();
    if (may_change(now.path) || was == now.get()) continue;
    changed += fmt::format("\n  {} was {} and is {}", now.path, dump_json(was), dump_json(now.get()));
  }
  if (changed.empty()) return {};
  return Status::invalid(fmt::format("the training in {} began with another config:{}", folder.string(), changed))
      .hint("go on with the config as it was, or name another `out` to begin anew");
}

Result<int> show_sample(const SftOptions& options, const trainer::ChatRenderer& renderer,
                        const trainer::SampleSet& samples) {
  if (options.show > static_cast<int>(samples.train.size())) {
    return fail(Status::invalid(
        fmt::format("--show {}: there are {} samples to train on", options.show, samples.train.size())));
  }
  const auto& [sample, place] = samples.train[static_cast<size_t>(options.show) - 1];
  const auto runs = renderer.runs_of(sample);
  if (options.json) {
    Json parts = Json::array();
    for (const auto& run : runs) parts.push_back({{"text", run.text}, {"trained", run.trained}});
    fmt::print("{}\n",
               dump_json(Json{{"place", place}, {"ids", sample.tokens}, {"mask", sample.trained}, {"parts", parts}}));
    return kDone;
  }
  const bool colour = ::isatty(STDOUT_FILENO) == 1;
  fmt::print(stderr, "{}: {} tokens; what is learned from is {}\n", place, sample.tokens.size(),
             colour ? "green" : "between ⟦ and ⟧");
  fmt::print("{}", marked_text(runs, colour));
  return kDone;
}

// Says what happens: lines to stderr, or with --json events to stdout.
class Reporter {
 public:
  explicit Reporter(bool json) : json_(json) {}
  void text(const std::string& lines) const {
    if (!json_) fmt::print(stderr, "{}", lines);
  }
  void event(const Json& event) const {
    if (!json_) return fmt::print(stderr, "{}\n", line_of(event, seconds()));
    fmt::print("{}\n", dump_json(event));
    std::fflush(stdout);
  }
  double seconds() const { return std::chrono::duration<double>(std::chrono::steady_clock::now() - start_).count(); }
  bool json() const { return json_; }

 private:
  const bool json_;
  const std::chrono::steady_clock::time_point start_ = std::chrono::steady_clock::now();
};

// The folder of the training, held by this process. Prepared for one that begins, found for one that goes on.
Result<FileDescriptor> open_folder(const SftOptions& options, const SftConfig& config, const Schema& schema,
                                   const fs::path& folder) {
  auto claim = run::claim_run_dir(folder);
  if (!claim && claim.error().code() == Code::kUnfit) return claim;
  if (!claim) return fail(Status(claim.error()).hint("wait for its end, or name another `out`"));
  std::error_code error;
  const bool begun = fs::exists(folder / kConfigFile, error);
  if (begun && options.resume) {
    TRY(check_same_config(folder, schema));
  } else if (begun) {
    return fail(Status::exists(fmt::format("{} is of a training that has not ended", folder.string()))
                    .hint(fmt::format("--resume goes on with it; remove {} to begin anew", folder.string())));
  }
  TRY(write_file(folder / kConfigFile, schema.resolved().dump(2) + "\n"));
  fs::remove(folder / "model", error);
  fs::create_directory_symlink(fs::absolute(config.model), folder / "model", error);  // for tandem export
  return claim;
}

Result<trainer::FineTuningSettings> settings_of(const SftConfig& config, const fs::path& folder) {
  const model::Place place = TRY(place_of(config));
  return trainer::FineTuningSettings{.model = config.model,
                                     .folder = folder,
                                     .out = config.out,
                                     .optimizer = {},  // once the number of steps is known
                                     .epochs = config.trainer.epochs,
                                     .steps = config.trainer.steps,
                                     .tokens_per_step = config.trainer.tokens_per_step,
                                     .validate_every = config.validation.every,
                                     .patience = config.validation.patience,
                                     .checkpoint_every = config.trainer.checkpoint_every,
                                     .seed = config.seed,
                                     .place = place};
}

// What is left of a training that has ended: how it went, and nothing to go on with.
void conclude(const fs::path& folder) {
  std::error_code error;
  fs::remove(folder / "model", error);
  fs::remove_all(folder / "checkpoints", error);
  if (fs::exists(folder / kConfigFile, error)) fs::rename(folder / kConfigFile, folder / kEndedConfigFile, error);
}

// `out` is there, and somebody wants to go on with its training: that of this config, or another's.
Result<int> has_ended(const SftConfig& config, const Schema& schema, const fs::path& folder) {
  std::error_code error;
  const bool ended = fs::exists(folder / kEndedConfigFile, error);
  if (!ended && !fs::exists(folder / kConfigFile, error)) {
    return fail(Status::invalid(
                    fmt::format("{} is there, and {} says of no training that made it", config.out, folder.string()))
                    .hint("name another `out`, or remove it"));
  }
  TRY(check_same_config(folder, schema, ended ? kEndedConfigFile : kConfigFile));
  conclude(folder);
  fmt::print(stderr, "{} is there: its training has ended\n", config.out);
  return kDone;
}

Result<int> finish(const SftConfig& config, const fs::path& folder, const trainer::FineTuningResult& result,
                   const Reporter& reporter) {
  using trainer::FineTuningEnd;
  const bool interrupted = result.end == FineTuningEnd::kInterrupted;
  const auto& best = result.validations;
  if (reporter.json()) {
    Json end = {{"event", "end"},
                {"end", interrupted                                  ? "interrupted"
                        : result.end == FineTuningEnd::kStoppedEarly ? "stopped_early"
                                                                     : "done"},
                {"step", result.step},
                {"steps", result.steps}};
    if (best.best_step > 0) end.update({{"best_step", best.best_step}, {"best_loss", best.best}});
    if (!interrupted) end["out"] = config.out;
    fmt::print("{}\n", dump_json(end));
  } else if (interrupted) {
    fmt::print(stderr, "interrupted after step {}; the same command with --resume goes on\n", result.step);
  } else {
    if (result.end == FineTuningEnd::kStoppedEarly)
      fmt::print(stderr, "stopped after step {}: {} validations without a better one\n", result.step, best.since_best);
    if (best.best_step > 0)
      fmt::print(stderr, "the model is that of step {}, with a validation loss of {:.4f}\n", best.best_step, best.best);
    fmt::print("{}\n", config.out);
  }
  if (interrupted) return kInterrupted;
  conclude(folder);
  return kDone;
}

}  // namespace

Result<int> train_on_transcripts(const SftOptions& options, const SftConfig& config, const Schema& schema) {
  const fs::path folder = config.out + ".work";
  const bool training = options.show == 0 && !options.dry_run;
  std::error_code error;
  // `out` is written whole, and nothing is trained that is there when it begins.
  if (training && fs::exists(config.out, error)) {
    if (!options.resume)
      return fail(
          Status::invalid(fmt::format("{} is there already", config.out)).hint("name another `out`, or remove it"));
    return has_ended(config, schema, folder);
  }
  const Reporter reporter(options.json);
  const auto interrupt = TRY(Interrupt::listen());
  const auto renderer = TRY(load_renderer(config));
  const auto samples = TRY(read_samples(config, renderer));
  if (options.show > 0) return show_sample(options, renderer, samples);
  auto settings = TRY(settings_of(config, folder));
  const int64_t steps = trainer::planned_steps(settings, samples);
  settings.optimizer = TRY(optimizer_of(config, steps));
  reporter.text(describe(config, samples, steps));
  if (options.json) reporter.event(to_json(samples, steps));
  if (options.dry_run) return kDone;
  auto learner = TRY(trainer::make_learner(settings));
  const auto claim = TRY(open_folder(options, config, schema, folder));
  const auto result = TRY(trainer::fine_tune(
      settings, samples, std::move(learner), [&](const Json& event) { reporter.event(event); }, interrupt->token()));
  return finish(config, folder, result, reporter);
}

}  // namespace tandem::cli
