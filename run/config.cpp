#include "run/config.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <charconv>
#include <utility>

#include "base/text.h"
#include "envs/tasks/task.h"
#include "kernels/lm_head.h"
#include "run/rewards.h"
#include "run/tasks.h"

namespace tandem::run {

namespace {

// How many tasks there are of each kind of the set that a run began with.
Result<rollout::CountsByKind> recorded_counts(const fs::path& run_dir) {
  const Json record = TRY(read_tasks_record(run_dir));
  rollout::CountsByKind counts;
  try {
    for (const Json& task : record.at("tasks")) {
      auto& of_kind = counts[task.at("kind").get<std::string>()];
      ++(task.at("split") == "train" ? of_kind.train : of_kind.heldout);
    }
  } catch (const Json::exception& error) {
    return fail(Status::corrupt((run_dir / "tasks.json").string() + " is not what was written: " + error.what()));
  }
  return counts;
}

// Where the trainer makes the advantages, rewards go to it.
AdvantageKind advantage_of_groups(const trainer::Algorithm& algorithm) {
  return trainer::is_of_whole_batch(algorithm) ? AdvantageKind::kReturns : algorithm.advantage;
}

bool takes_functions(const trainer::Algorithm& algorithm) {
  return trainer::is_function(algorithm) || algorithm.advantage == AdvantageKind::kTorch;
}

void set_advantages(const trainer::Algorithm& algorithm, rollout::RunPlan& plan) {
  plan.advantage = advantage_of_groups(algorithm);
  plan.episode_metrics = takes_functions(algorithm) || std::ranges::any_of(algorithm.parts, takes_functions);
  for (const trainer::Algorithm& part : algorithm.parts) {
    for (const std::string& kind : part.kinds) {
      plan.advantages[kind] = {
          .advantage = advantage_of_groups(part), .std_epsilon = part.std_epsilon, .pass_k = part.pass_k};
    }
  }
}

Status check_kinds(const rollout::RunPlan& plan) {
  const std::vector<std::string_view> known(plan.kinds.begin(), plan.kinds.end());
  for (const auto& [kind, rule] : plan.advantages) TRY(check_kind_of_algorithm(kind, known));
  return {};
}

// What a run cannot do of an algorithm, its own or that of some kinds.
Status check_algorithm(const trainer::Algorithm& algorithm) {
  if (trainer::is_against_sampler(algorithm) && algorithm.correction.kind != trainer::Correction::Kind::kNone) {
    return Status::invalid(
        "algorithm.correction.kind: the ratio of dppo is taken against the sampler already; leave it at none");
  }
  if (algorithm.advantage == AdvantageKind::kDistill && !algorithm.teacher.any()) {
    return Status::invalid("algorithm.advantage: distill needs a model that teaches")
        .hint(
            "algorithm.teacher.path names a directory, or a step of a run: RUN@last; algorithm.teacher.url an "
            "endpoint; with algorithm.teacher.hint it is the model itself");
  }
  return {};
}

}  // namespace

Status check_kind_of_algorithm(const std::string& kind, std::span<const std::string_view> known) {
  if (std::ranges::find(known, kind) != known.end()) return {};
  return Status::invalid(
      fmt::format("algorithm.kinds: the run has no tasks of kind \"{}\"{}", kind, did_you_mean(kind, known)));
}

int dynamic_sampling_of(const RunConfig& c) {
  if (c.trainer.dynamic_sampling) return *c.trainer.dynamic_sampling;
  const auto algorithm = trainer::algorithm_named(c.algorithm.name);
  return algorithm ? algorithm->dynamic_sampling : 0;
}

rollout::Truncation truncation_of(const RunConfig& c) {
  return {.top_k = c.rollout.top_k,
          .top_p = static_cast<float>(c.rollout.top_p),
          .min_p = static_cast<float>(c.rollout.min_p)};
}

Result<rollout::RunPlan> plan_of(const RunConfig& c, const fs::path& run_dir) {
  const auto on_lag = TRY(rollout::on_lag_named(c.trainer.on_lag));
  rollout::RewardWeights weights = c.reward;
  weights.terms = TRY(envs::parse_reward_weights(c.reward.weights));
  rollout::RunPlan plan{.seed = c.run.seed,
                        .steps = c.run.steps,
                        .groups_per_step = c.trainer.groups_per_step,
                        .group_size = c.trainer.group_size,
                        .max_lag = c.trainer.max_lag,
                        .on_lag = on_lag,
                        .deterministic = c.run.deterministic,
                        .reward = weights,
                        .compare = !c.reward.own.judge.url.empty() && c.reward.own.judge.pairwise,
                        .shuffle_rewards = c.algorithm.shuffle_rewards,
                        .kinds = c.tasks.kinds,
                        .temperature = static_cast<float>(c.rollout.temperature),
                        .truncation = truncation_of(c),
                        .heldout_tasks = c.tasks.heldout,
                        .heldout_samples = c.tasks.heldout_samples,
                        .heldout_split = c.tasks.heldout_split,
                        .heldout_every = c.tasks.heldout > 0 ? c.tasks.heldout_every : 0,
                        .std_epsilon = c.algorithm.std_epsilon,
                        .pass_k = c.algorithm.pass_k,
                        .branch = {},
                        .steal_from = c.rollout.steal_from};
  if (const auto& branch = c.rollout.branch; branch.ways > 1)
    plan.branch = {.ways = branch.ways, .first_turn = branch.first_turn, .last_turn = branch.last_turn};
  // Where the trainer makes the advantages, rewards go to it.
  if (const auto algorithm = algorithm_of(c)) set_advantages(*algorithm, plan);
  plan.all_groups = c.algorithm.teacher.any();
  if (!plan.all_groups) plan.dynamic_sampling = dynamic_sampling_of(c);
  plan.leave_out_truncated = c.trainer.leave_out_truncated;
  if (c.tasks.path.empty()) {
    TRY(check_kinds(plan));
    return plan;
  }
  plan.counts = TRY(recorded_counts(run_dir));
  plan.kinds.clear();
  int heldout = 0;
  for (const auto& [kind, count] : plan.counts) {
    plan.kinds.push_back(kind);
    heldout += static_cast<int>(count.heldout);
  }
  plan.heldout_tasks = std::min(plan.heldout_tasks, heldout);
  TRY(check_kinds(plan));
  return plan;
}

Result<trainer::OptimizerSettings> optimizer_of(const RunConfig& c) {
  auto settings = TRY(trainer::optimizer_settings(
      c.trainer, {.steps = c.run.steps, .warmup_steps = c.trainer.warmup_steps}, c.lora, c.run.seed));
  settings.updates = {.epochs = c.trainer.epochs,
                      .minibatches = c.trainer.minibatches,
                      .kl_stop = c.trainer.kl_stop,
                      .seed = c.run.seed};
  settings.logit_scale = kernels::logit_scale_at(static_cast<float>(c.rollout.temperature));
  return settings;
}

Result<size_t> kept_checkpoints(const RunConfig& c) {
  const std::string& text = c.trainer.keep_checkpoints;
  if (text == "all") return SIZE_MAX;
  if (text == "best") {
    if (c.tasks.heldout_every > 0 && c.tasks.heldout > 0) return 1;
    return fail(Status::invalid("trainer.keep_checkpoints is best, and nothing is measured while training goes on")
                    .hint("set tasks.heldout_every, or keep a number of the newest"));
  }
  size_t count = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), count);
  if (error == std::errc() && end == text.data() + text.size() && count >= 1) return count;
  return fail(Status::invalid(
      fmt::format("trainer.keep_checkpoints is \"{}\", neither all nor a number from 1, nor best", text)));
}

std::vector<std::string> alarms_off_of(const RunConfig& c) {
  std::vector<std::string> off = c.run.alarms_off;
  if (c.rollout.on_new_version == "keep") off.emplace_back("mismatch");
  if (c.algorithm.teacher.any()) off.emplace_back("no_signal");
  return off;
}

Result<trainer::Algorithm> algorithm_of(const RunConfig& c) {
  auto algorithm = TRY(trainer::algorithm_of(c.algorithm));
  for (size_t i = 0; i <= algorithm.parts.size(); ++i) {
    const trainer::Algorithm& part = trainer::part_of(algorithm, i);
    const Status status = check_algorithm(part);
    if (status.ok()) continue;
    if (part.kinds.empty()) return fail(status);
    return fail(Status(status).at(fmt::format("algorithm.kinds: {}", fmt::join(part.kinds, ","))));
  }
  return algorithm;
}

}  // namespace tandem::run
