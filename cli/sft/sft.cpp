// `tandem sft`: supervised training, on transcripts or on demonstrations of the workspace family.
#include <fmt/format.h>

#include <chrono>

#include "base/text.h"
#include "cli/command.h"
#include "cli/sft/sft_transcripts.h"
#include "run/run_step.h"
#include "trainer/sft/warm_start.h"

namespace tandem::cli {

namespace {

Result<int> warm_start(const SftConfig& config) {
  auto weights = TRY(model::load_weights(config.model, true));
  const auto conversation = TRY(rollout::Conversation::load(config.model));
  auto learner = TRY(trainer::Learner::create(
      std::move(weights), TRY(place_of(config)),
      {.learning_rate = {.peak = config.first.learning_rate, .warmup_steps = config.warmup_steps}}));
  const auto start = std::chrono::steady_clock::now();
  uint64_t next = 0;
  int step = 0;
  const int total = config.first.steps + config.second.steps;
  for (const WarmStartStage& stage : {config.first, config.second}) {
    learner.set_learning_rate(stage.learning_rate);
    const trainer::WarmStartSettings settings{.kinds = config.kinds,
                                              .seed = config.seed,
                                              .transcripts_per_step = config.transcripts_per_step,
                                              .noise = {stage.random_tool, stage.corrupt_argument, stage.dictated}};
    for (int i = 0; i < stage.steps; ++i) {
      const auto samples =
          TRY(trainer::demonstrations(settings, conversation, next, config.transcripts_per_step, config.max_tokens));
      next += samples.size();
      const auto metrics = TRY(learner.imitate(samples));
      ++step;
      fmt::print(stderr, "step {:3}/{}  loss {:.4f}  grad {:.2f}  {} tokens ({} computed)  {}\n", step, total,
                 metrics.loss, metrics.grad_norm, metrics.trained_tokens, metrics.tree_tokens,
                 format_seconds(std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count()));
    }
  }
  TRY(model::save_weights(learner.weights(), config.out, config.model));
  fmt::print("{}\n", config.out);
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
  if (options.resume || options.dry_run || options.json || options.show > 0) {
    return fail(Status::invalid("--resume, --dry-run, --show and --json are of training on transcripts")
                    .hint("name files in data.train, such as data.train=[chats.jsonl]"));
  }
  return warm_start(config);
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
      "  tandem sft configs/warm_start.yaml out=models/my-start stages.first.steps=40");
  return [options] { return run(*options); };
}

}  // namespace tandem::cli
