#include "cli/sft/sft_transcripts.h"

#include <fmt/format.h>
#include <unistd.h>

#include <chrono>

#include "base/json_line.h"
#include "cli/command.h"
#include "cli/interrupt.h"
#include "cli/sft/sft_data.h"
#include "cli/sft/sft_view.h"
#include "cli/sft/training_folder.h"
#include "trainer/sft/reward_reader.h"

namespace tandem::cli {

namespace {

// `answer`: which of a pair it is; empty: none.
void show(const SftOptions& options, const trainer::ChatRenderer& renderer, const trainer::PlacedSample& placed,
          const std::string& answer) {
  const auto& [sample, place, margin] = placed;
  const auto runs = renderer.runs_of(sample);
  if (options.json) {
    Json parts = Json::array();
    for (const auto& run : runs) parts.push_back({{"text", run.text}, {"trained", run.trained}});
    Json line = {{"place", place}, {"ids", sample.tokens}, {"mask", sample.trained}, {"parts", parts}};
    if (!answer.empty()) line["answer"] = answer;
    if (margin != 0) line["margin"] = margin;
    fmt::print("{}\n", dump_json_line(line));
    return;
  }
  const bool colour = ::isatty(STDOUT_FILENO) == 1;
  fmt::print(stderr, "{}{}: {} tokens; what is learned from is {}\n", place, answer.empty() ? "" : ", " + answer,
             sample.tokens.size(), colour ? "green" : "between ⟦ and ⟧");
  fmt::print("{}", marked_text(runs, colour));
  std::fflush(stdout);
}

Result<int> show_sample(const SftOptions& options, const trainer::ChatRenderer& renderer,
                        const trainer::SampleSet& samples) {
  const size_t each = samples.pairs ? 2 : 1, count = samples.train.size() / each;
  if (options.show > static_cast<int>(count)) {
    return fail(Status::invalid(fmt::format("--show {}: there are {} {} to train on", options.show, count,
                                            samples.pairs ? "pairs" : "samples")));
  }
  const size_t first = (static_cast<size_t>(options.show) - 1) * each;
  for (size_t i = first; i < first + each; ++i)
    show(options, renderer, samples.train[i], !samples.pairs ? "" : i == first ? "chosen" : "rejected");
  return kDone;
}

Result<trainer::FineTuningSettings> settings_of(const SftConfig& config, const fs::path& folder) {
  const model::Place place = TRY(place_of(config));
  std::optional<trainer::FineTuningSettings::Reward> reward;
  if (config.on_rewards()) {
    reward = {.loss = {.center = config.reward.center_rewards_coefficient, .trunk = config.reward.trunk},
              .learning_rate = config.reward.learning_rate,
              .notes = trainer::reward_notes(config.data.tool_calls, config.data.now)};
  }
  const auto preference = reward ? trainer::PreferenceLoss() : TRY(preference_of(config));
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
                                     .place = place,
                                     .preference = preference,
                                     .reward = std::move(reward)};
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
    fmt::print("{}\n", dump_json_line(end));
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
  conclude_training(folder);
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
    return training_has_ended(config, schema, folder);
  }
  const Reporter reporter(options.json);
  const auto interrupt = TRY(Interrupt::listen());
  const auto renderer = TRY(load_renderer(config));
  if (config.on_rewards() && !renderer.writes_calls()) {
    fmt::print(
        stderr,
        "warning: the model's chat template writes no tool calls, so this reward model will refuse conversations "
        "with calls; set data.tool_calls=text to have them written into the messages\n");
  }
  const auto samples = TRY(read_samples(config, renderer));
  if (options.show > 0) return show_sample(options, renderer, samples);
  auto settings = TRY(settings_of(config, folder));
  const int64_t steps = trainer::planned_steps(settings, samples);
  settings.optimizer = TRY(optimizer_of(config, steps));
  reporter.text(describe(config, samples, steps));
  if (options.json) reporter.event(to_json(samples, steps));
  if (options.dry_run) return kDone;
  auto learner = TRY(trainer::make_learner(settings));
  const auto claim = TRY(open_training_folder(options.resume, config, schema, folder));
  const auto result = TRY(trainer::fine_tune(
      settings, samples, std::move(learner), [&](const Json& event) { reporter.event(event); }, interrupt->token()));
  return finish(config, folder, result, reporter);
}

}  // namespace tandem::cli
