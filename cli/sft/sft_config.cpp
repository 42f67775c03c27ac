#include "cli/sft/sft_config.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <thread>

#include "base/iso_time.h"
#include "cli/model/model_options.h"
#include "envs/tasks/task.h"
#include "envs/tasks/workspace/kinds.h"
#include "trainer/learn/lora_fields.h"

namespace tandem::cli {

namespace {

constexpr std::array<std::string_view, 6> kWarmStartKeys = {"transcripts_per_step", "max_tokens", "warmup_steps",
                                                            "checkpoint_seconds",   "kinds",      "stages."};
constexpr std::array<std::string_view, 6> kTranscriptKeys = {"data.",       "trainer.",    "lora.",
                                                             "validation.", "preference.", "reward."};

bool is_of(std::string_view path, std::span<const std::string_view> keys) {
  return std::any_of(keys.begin(), keys.end(),
                     [&](std::string_view key) { return key.ends_with('.') ? path.starts_with(key) : path == key; });
}

}  // namespace

Schema schema_of(SftConfig& c) {
  Schema s;
  const auto kinds = envs::task_kinds();
  c.kinds.assign(kinds.begin(), kinds.end());
  s.add("model", c.model, "Model directory to start from, or a step of a run: RUN@12, RUN@last, RUN@best");
  s.add("out", c.out, "Model directory to write");
  s.add("seed", c.seed, "Of the order of transcripts, or of the demonstrations");
  s.add("device", c.device, "Device: auto, cpu, cpu:avx2 and the like, cuda:0, cuda:0:tensor, emulated:0");
  s.add("threads", c.threads, "Threads to compute with; 0: all cores", 0, 1024);
  auto& d = c.data;
  s.add("data.train", d.train,
        "Files of transcripts (JSON Lines of messages, ATIF, episodes) and run directories; empty: a warm start on "
        "demonstrations");
  s.add("data.preferences", d.preferences,
        "Pairs of answers, in place of data.train: files (JSON Lines of prompt, chosen and rejected) and run "
        "directories (the "
        "best and the worst episode of a group)");
  s.add("data.validation", d.validation, "The same, to validate on");
  s.add("data.validation_share", d.validation_share,
        "Of data.train or data.preferences, held out to validate on by the hash of the content", 0, 0.9);
  s.add("data.max_tokens", d.max_tokens, "Longer transcripts are left out; at most what the model takes", 2, 1 << 20);
  s.add("data.min_reward", d.min_reward, "Episodes of a run with less are left out", -1e9, 1e9);
  s.add("data.tool_calls", d.tool_calls,
        "Who writes tool calls: the model's chat template, or we into the messages, as the workspace tasks have them",
        {"template", "text"});
  s.add("data.now", d.now, "The time, such as 2026-01-31, for chat templates that write the date");
  s.add("data.on_error", d.on_error,
        "What a transcript that cannot be learned from does: it ends the training, or is left out, counted and named",
        {"stop", "skip"});
  auto& t = c.trainer;
  s.add("trainer.epochs", t.epochs, "Times that every transcript is learned from", 1, 1000);
  s.add("trainer.steps", t.steps, "Optimizer steps, in place of epochs; 0: by the epochs", 0, 1e7);
  s.add("trainer.tokens_per_step", t.tokens_per_step,
        "A step takes transcripts of so many tokens together, one at least", 1, 1e9);
  trainer::add_optimizer_fields(s, t, t.warmup_share);
  s.add("preference.loss", c.preference.loss,
        "Of pairs: sigmoid is DPO; reward trains a reward model (Bradley-Terry), by the keys below reward",
        {"sigmoid", "ipo", "hinge", kRewardLoss});
  s.add("preference.beta", c.preference.beta, "How strongly the model is held to where it started; smaller: less", 1e-6,
        1e6);
  s.add("preference.label_smoothing", c.preference.label_smoothing,
        "Share of pairs taken to be the wrong way round, of sigmoid", 0, 0.499);
  s.add("preference.sft", c.preference.sft, "Weight of the chosen answer's own negative log-likelihood, by token", 0,
        1e6);
  s.add(
      "reward.learning_rate", c.reward.learning_rate,
      "Of a reward model's head: peak learning rate, by the schedule of trainer; the model's is trainer.learning_rate",
      0, 1);
  s.add("reward.trunk", c.reward.trunk, "Whether the model learns beside the head; false: its weights keep their bits");
  s.add("reward.margin", c.reward.margin,
        "By how much the reward of the chosen answer is to be above the other's, of pairs that say no margin", -1e6,
        1e6);
  s.add("reward.center_rewards_coefficient", c.reward.center_rewards_coefficient,
        "Weight of the squared sum of a pair's rewards, which centres them about 0; 0: none", 0, 1e6);
  add_lora_fields(s, c.lora);
  s.add("validation.every", c.validation.every, "Steps between validations; the last step is always validated", 1, 1e6);
  s.add("validation.patience", c.validation.patience,
        "Validations without a better one after which training ends; 0: it never ends early", 0, 1e6);
  s.add("transcripts_per_step", c.transcripts_per_step, "Of the warm start: demonstrations a step", 1, 4096);
  s.add("max_tokens", c.max_tokens, "Of the warm start: longer demonstrations are left out", 64, 1 << 20);
  s.add("warmup_steps", c.warmup_steps, "Of the warm start: over which the learning rate rises", 0, 10000);
  s.add("checkpoint_seconds", c.checkpoint_seconds,
        "Of the warm start: seconds between checkpoints, from which --resume goes on; more on a disk so slow that they "
        "would take more than a tenth of the time",
        0, 86400);
  s.add("kinds", c.kinds, "Of the warm start: kinds of task", {kinds.begin(), kinds.end()});
  for (auto [name, stage] : {std::pair{"first", &c.first}, {"second", &c.second}}) {
    const std::string prefix = fmt::format("stages.{}.", name);
    s.add(prefix + "steps", stage->steps, "Of the warm start: optimizer steps", 0, 1e6);
    s.add(prefix + "learning_rate", stage->learning_rate, "Of AdamW", 0, 1);
    s.add(prefix + "random_tool", stage->random_tool, "Probability of a random call in place of the next one", 0, 1);
    s.add(prefix + "corrupt_argument", stage->corrupt_argument, "Probability of a wrong argument", 0, 1);
    s.add(prefix + "dictated", stage->dictated, "Share whose instruction dictates the call", 0, 1);
  }
  return s;
}

Status check(const SftConfig& c, const Schema& schema) {
  for (const Field& field : schema.fields()) {
    const std::string origin = schema.origin(field.path);
    if (origin == "default" || field.path == "data.train" || field.path == "data.preferences") continue;
    if (c.on_transcripts() && !c.on_pairs() && field.path.starts_with("preference.")) {
      return Status::invalid(
                 fmt::format("{}: {} is of pairs of answers, and data.train names transcripts", origin, field.path))
          .hint("name files of pairs in data.preferences, and none in data.train");
    }
    if (c.on_transcripts() && !c.on_rewards() && field.path.starts_with("reward.")) {
      return Status::invalid(
                 fmt::format("{}: {} is of reward models, and {}", origin, field.path,
                             c.on_pairs() ? "preference.loss is " + c.preference.loss : "data.train names transcripts"))
          .hint("set preference.loss=reward, with pairs in data.preferences");
    }
    if (c.on_rewards() && field.path.starts_with("preference.") && field.path != "preference.loss") {
      return Status::invalid(fmt::format("{}: {} is of training a policy on pairs, and preference.loss=reward trains a "
                                         "reward model",
                                         origin, field.path))
          .hint("leave it out; the keys below reward say how a reward model is trained");
    }
    if (c.on_transcripts() && is_of(field.path, kWarmStartKeys)) {
      return Status::invalid(fmt::format("{}: {} is of the warm start, and {} names files", origin, field.path,
                                         c.on_pairs() ? "data.preferences" : "data.train"))
          .hint("the keys below data, trainer, lora and validation say how to train on transcripts");
    }
    if (!c.on_transcripts() && is_of(field.path, kTranscriptKeys)) {
      return Status::invalid(
                 fmt::format("{}: {} is of training on transcripts, and data.train names none", origin, field.path))
          .hint("name files in data.train, such as data.train=[chats.jsonl], or pairs of answers in data.preferences");
    }
  }
  TRY(optimizer_of(c, 1));
  if (c.on_pairs() && !c.data.train.empty())
    return Status::invalid("data.train and data.preferences both name files; one training has the one or the other")
        .hint("train on transcripts first, then on pairs with model= what came of it");
  if (c.on_rewards() && !c.reward.trunk && c.lora.rank > 0)
    return Status::invalid("reward.trunk is false, and lora.rank has factors of the model learn")
        .hint("set reward.trunk=true to train with LoRA, or lora.rank=0 to train the head alone");
  if (c.preference.label_smoothing > 0 && c.preference.loss != "sigmoid")
    return Status::invalid(
        fmt::format("preference.label_smoothing is of the loss sigmoid, not of {}", c.preference.loss));
  if (!c.data.validation.empty() && c.data.validation_share > 0)
    return Status::invalid("data.validation names files: leave data.validation_share at 0");
  if (c.validation.patience > 0 && c.data.validation.empty() && c.data.validation_share == 0)
    return Status::invalid("validation.patience needs data.validation or data.validation_share: nothing is validated")
        .hint("set data.validation_share=0.05 for one, or validation.patience=0");
  if (!c.data.now.empty() && !parse_iso_time(c.data.now))
    return Status::invalid(
        fmt::format("data.now is \"{}\", not a time like 2026-01-31 or 2026-01-31T12:30:00", c.data.now));
  return {};
}

Result<trainer::OptimizerSettings> optimizer_of(const SftConfig& c, int64_t steps) {
  const auto& t = c.trainer;
  const auto rising = static_cast<int>(std::lround(t.warmup_share * static_cast<double>(steps)));
  return trainer::optimizer_settings(t, {.steps = steps, .warmup_steps = rising}, c.lora, c.seed);
}

Result<trainer::PreferenceLoss> preference_of(const SftConfig& c) {
  return trainer::PreferenceLoss{.kind = TRY(trainer::preference_kind(c.preference.loss)),
                                 .beta = c.preference.beta,
                                 .label_smoothing = c.preference.label_smoothing,
                                 .sft = c.preference.sft};
}

Result<model::Place> place_of(const SftConfig& c) {
  return place_of(c.device,
                  c.threads > 0 ? c.threads : static_cast<int>(std::max(1u, std::thread::hardware_concurrency())));
}

}  // namespace tandem::cli
