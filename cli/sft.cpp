#include <fmt/format.h>
#include <unistd.h>

#include <chrono>
#include <thread>

#include "base/config.h"
#include "base/text.h"
#include "cli/command.h"
#include "trainer/warm_start.h"

namespace tandem::cli {

namespace {

struct Stage {
  int steps = 0;
  double learning_rate = 0, random_tool = 0, corrupt_argument = 0, dictated = 0;
};

struct SftConfig {
  std::string model = "models/SmolLM2-135M-Instruct";
  std::string out = "models/warm-start";
  uint64_t seed = 1;
  int threads = static_cast<int>(std::thread::hardware_concurrency());
  int transcripts_per_step = 16;
  int max_tokens = 1024;
  int warmup_steps = 5;
  std::vector<std::string> kinds;
  Stage first{.steps = 40, .learning_rate = 1e-4, .random_tool = 0.05, .corrupt_argument = 0.15, .dictated = 0.1};
  Stage second{.steps = 80, .learning_rate = 1.2e-4, .random_tool = 0.1};
};

Schema schema_of(SftConfig& c) {
  Schema s;
  const auto kinds = envs::task_kinds();
  c.kinds.assign(kinds.begin(), kinds.end());
  s.add("model", c.model, "Model directory to start from");
  s.add("out", c.out, "Model directory to write");
  s.add("seed", c.seed, "Of the demonstrations");
  s.add("threads", c.threads, "Threads to compute with", 1, 1024);
  s.add("transcripts_per_step", c.transcripts_per_step, "Demonstrations a step", 1, 4096);
  s.add("max_tokens", c.max_tokens, "Longer demonstrations are left out", 64, 1 << 20);
  s.add("warmup_steps", c.warmup_steps, "Over which the learning rate rises", 0, 10000);
  s.add("kinds", c.kinds, "Kinds of task", {kinds.begin(), kinds.end()});
  for (auto [name, stage] : {std::pair{"first", &c.first}, {"second", &c.second}}) {
    const std::string prefix = fmt::format("stages.{}.", name);
    s.add(prefix + "steps", stage->steps, "Optimizer steps", 0, 1e6);
    s.add(prefix + "learning_rate", stage->learning_rate, "Of AdamW", 0, 1);
    s.add(prefix + "random_tool", stage->random_tool, "Probability of a random call in place of the next one", 0, 1);
    s.add(prefix + "corrupt_argument", stage->corrupt_argument, "Probability of a wrong argument", 0, 1);
    s.add(prefix + "dictated", stage->dictated, "Share whose instruction dictates the call", 0, 1);
  }
  return s;
}

struct Options {
  std::string config;
  std::vector<std::string> overrides;
};

Result<int> run(const Options& options) {
  SftConfig config;
  Schema schema = schema_of(config);
  TRY(schema.read(options.config, options.overrides));
  auto weights = TRY(model::load_weights(config.model, true));
  const auto conversation = TRY(rollout::Conversation::load(config.model));
  auto learner = TRY(trainer::Learner::create(
      std::move(weights), TRY(kernels::Stream::cpu(config.threads)),
      {.learning_rate = {.peak = config.first.learning_rate, .warmup_steps = config.warmup_steps}}));
  const auto start = std::chrono::steady_clock::now();
  uint64_t next = 0;
  int step = 0;
  const int total = config.first.steps + config.second.steps;
  for (const Stage& stage : {config.first, config.second}) {
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

}  // namespace

Action add_sft(CLI::App& command) {
  auto options = std::make_shared<Options>();
  command.add_option("config", options->config, "YAML file")->check(CLI::ExistingFile);
  command.add_option("overrides", options->overrides, "key=value, over the file's");
  command.footer("Example:\n  tandem sft configs/warm_start.yaml out=models/my-start stages.first.steps=40");
  return [options] { return run(*options); };
}

}  // namespace tandem::cli
