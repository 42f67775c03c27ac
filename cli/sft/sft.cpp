// `tandem sft`: supervised training, on transcripts or on demonstrations of the workspace family, and on pairs of
// answers of which one is preferred.
#include <fmt/format.h>

#include "cli/command.h"
#include "cli/interrupt.h"
#include "cli/sft/sft_transcripts.h"
#include "cli/sft/sft_view.h"
#include "cli/sft/training_folder.h"
#include "run/run_step.h"
#include "trainer/sft/demonstration_training.h"

namespace tandem::cli {

namespace {

trainer::DemonstrationStage stage_of(const WarmStartStage& stage) {
  return {.steps = stage.steps,
          .learning_rate = stage.learning_rate,
          .noise = {stage.random_tool, stage.corrupt_argument, stage.dictated}};
}

Result<int> warm_start(const SftOptions& options, const SftConfig& config, const Schema& schema) {
  const fs::path folder = config.out + ".work";
  std::error_code error;
  if (fs::exists(config.out, error)) {
    if (options.resume) return training_has_ended(config, schema, folder);
    return fail(
        Status::invalid(fmt::format("{} is there already", config.out)).hint("name another `out`, or remove it"));
  }
  const Reporter reporter(options.json);
  const auto interrupt = TRY(Interrupt::listen());
  const auto place = TRY(place_of(config));
  const trainer::DemonstrationSettings settings{.model = config.model,
                                                .folder = folder,
                                                .out = config.out,
                                                .stages = {stage_of(config.first), stage_of(config.second)},
                                                .kinds = config.kinds,
                                                .seed = config.seed,
                                                .transcripts_per_step = config.transcripts_per_step,
                                                .max_tokens = config.max_tokens,
                                                .warmup_steps = config.warmup_steps,
                                                .checkpoint_seconds = config.checkpoint_seconds,
                                                .place = place};
  const auto claim = TRY(open_training_folder(options.resume, config, schema, folder));
  const auto result = TRY(trainer::train_on_demonstrations(
      settings, [&](const Json& event) { reporter.event(event); }, interrupt->token()));
  if (reporter.json()) {
    Json end = {{"event", "end"},
                {"end", result.interrupted ? "interrupted" : "done"},
                {"step", result.step},
                {"steps", result.steps}};
    if (!result.interrupted) end["out"] = config.out;
    reporter.event(end);
  } else if (result.interrupted) {
    fmt::print(stderr, "interrupted after step {}; the same command with --resume goes on\n", result.step);
  } else {
    fmt::print("{}\n", config.out);
  }
  if (result.interrupted) return kInterrupted;
  conclude_training(folder);
  return kDone;
}

Result<int> run(SftOptions options) {
  // A config file may be left out, a key=value may come first.
  std::error_code error;
  if (options.config.find('=') != std::string::npos && !fs::exists(options.config, error))
    options.overrides.insert(options.overrides.begin(), std::exchange(options.config, ""));
  SftConfig config;
  Schema schema = schema_of(config);
  schema.known_elsewhere(keys_of_all_configs());
  TRY(schema.read(options.config, options.overrides));
  TRY(check(config, schema));
  config.model = TRY(run::model_directory(config.model)).string();
  // What is written beside it has its name and more.
  while (config.out.size() > 1 && config.out.ends_with('/')) config.out.pop_back();
  if (config.on_transcripts()) return train_on_transcripts(options, config, schema);
  if (options.dry_run || options.show > 0) {
    return fail(Status::invalid("--dry-run and --show are of training on transcripts")
                    .hint("name files in data.train, such as data.train=[chats.jsonl], or in data.preferences"));
  }
  return warm_start(options, config, schema);
}

}  // namespace

Action add_sft(CLI::App& command) {
  auto options = std::make_shared<SftOptions>();
  command.add_option("config", options->config, "YAML file");
  command.add_option("overrides", options->overrides, "key=value, over the file's");
  command.add_flag("--resume", options->resume, "Go on with the training of this config, where it stopped");
  command.add_option("--show", options->show, "Show the text of the Nth sample with what is learned from marked")
      ->type_name("N")
      ->check(CLI::Range(1, 1 << 30));
  command.add_flag("--dry-run", options->dry_run, "Read and check the transcripts, say what would be done, do nothing");
  command.add_flag("--json", options->json, "Print what happens as JSON, an event a line");
  command.footer(
      "Examples:\n"
      "  tandem sft configs/sft.yaml data.train=[chats.jsonl] out=models/mine --show 1\n"
      "  tandem sft configs/sft.yaml data.train=[chats.jsonl] data.validation_share=0.05 out=models/mine\n"
      "  tandem sft configs/preferences.yaml data.preferences=[pairs.jsonl] model=models/mine out=models/preferred\n"
      "  tandem sft configs/reward_model.yaml data.preferences=[pairs.jsonl] model=models/mine out=models/judge\n"
      "  tandem sft configs/warm_start.yaml out=models/my-start stages.first.steps=40\n"
      "  tandem sft configs/warm_start.yaml out=models/my-start stages.first.steps=40 --resume");
  return [options] { return run(*options); };
}

}  // namespace tandem::cli
