#include "rollout/books/plan.h"

#include <fmt/format.h>

#include <array>

namespace tandem::rollout {

namespace {

constexpr std::array<std::string_view, 3> kOnLagNames = {"unbound", "wait", "drop"};

Json to_json(const RewardWeights& w) {
  Json json = {{"task", w.task},
               {"tests", w.tests},
               {"lints", w.lints},
               {"format", w.format},
               {"effort", w.effort},
               {"effort_token", w.effort_token},
               {"effort_call", w.effort_call},
               {"effort_turn", w.effort_turn},
               {"effort_k", w.effort_k},
               {"effort_q", w.effort_q}};
  if (!w.terms.empty()) json["terms"] = w.terms;
  if (w.turns != 0) json["turns"] = w.turns;
  return json;
}

RewardWeights weights_from_json(const Json& json) {
  RewardWeights w{.task = json.at("task").get<double>(),
                  .tests = json.at("tests").get<double>(),
                  .lints = json.at("lints").get<double>(),
                  .format = json.at("format").get<double>(),
                  .effort = json.at("effort").get<double>(),
                  .effort_token = json.at("effort_token").get<double>(),
                  .effort_call = json.at("effort_call").get<double>(),
                  .effort_turn = json.at("effort_turn").get<double>(),
                  .effort_k = json.at("effort_k").get<double>(),
                  .effort_q = json.at("effort_q").get<double>()};
  if (json.contains("terms")) w.terms = json.at("terms").get<std::map<std::string, double>>();
  w.turns = json.value("turns", 0.0);
  return w;
}

Status within(std::string_view name, int64_t value, int64_t least, int64_t most) {
  if (value >= least && value <= most) return {};
  return Status::invalid(fmt::format("{} of a plan is {}; it must be {} to {}", name, value, least, most));
}

}  // namespace

std::string_view to_string(OnLag on_lag) { return kOnLagNames[static_cast<size_t>(on_lag)]; }

Result<OnLag> on_lag_named(std::string_view name) {
  for (size_t i = 0; i < kOnLagNames.size(); ++i) {
    if (kOnLagNames[i] == name) return static_cast<OnLag>(i);
  }
  return fail(Status::invalid(fmt::format("\"{}\" is not one of wait, drop", name)));
}

AdvantageRule advantage_of(const RunPlan& plan, const std::string& kind) {
  const auto found = plan.advantages.find(kind);
  if (found != plan.advantages.end()) return found->second;
  return {.advantage = plan.advantage, .std_epsilon = plan.std_epsilon, .pass_k = plan.pass_k};
}

Status check(const RunPlan& plan) {
  TRY(within("steps", plan.steps, 0, kMostSteps));
  TRY(within("groups_per_step", plan.groups_per_step, 1, 100'000));
  TRY(within("group_size", plan.group_size, 1, 4096));
  TRY(within("max_lag", plan.max_lag, 0, 100));
  TRY(within("heldout_tasks", plan.heldout_tasks, 0, 1'000'000));
  TRY(within("heldout_samples", plan.heldout_samples, 0, 1024));
  TRY(within("heldout_every", plan.heldout_every, 0, kMostSteps));
  TRY(within("max_attempts", plan.max_attempts, 1, 1'000'000));
  TRY(within("pass_k", plan.pass_k, 1, 4096));
  TRY(check(plan.truncation));
  TRY(within("steal_from", plan.steal_from, 0, 1'000'000));
  TRY(within("dynamic_sampling", plan.dynamic_sampling, 0, 1000));
  TRY(within("branch.ways", plan.branch.ways, 1, kMostBranches));
  TRY(within("branch.first_turn", plan.branch.first_turn, 1, kMostBranchTurns));
  TRY(within("branch.last_turn", plan.branch.last_turn, plan.branch.first_turn, kMostBranchTurns));
  for (const std::string& kind : plan.kinds) {
    if (!plan.counts.empty() && !plan.counts.contains(kind))
      return Status::invalid(fmt::format("a plan counts no tasks of its kind \"{}\"", kind));
  }
  if (plan.steps > 0 && trainable(plan.kinds, plan.counts).empty())
    return Status::invalid("a plan has steps and no tasks to train on");
  return {};
}

Json to_json(const RunPlan& plan) {
  Json counts = Json::object();
  for (const auto& [kind, count] : plan.counts) counts[kind] = {{"train", count.train}, {"heldout", count.heldout}};
  Json json = {{"seed", plan.seed},
               {"steps", plan.steps},
               {"groups_per_step", plan.groups_per_step},
               {"group_size", plan.group_size},
               {"max_lag", plan.max_lag},
               {"on_lag", to_string(plan.on_lag)},
               {"deterministic", plan.deterministic},
               {"reward", to_json(plan.reward)},
               {"shuffle_rewards", plan.shuffle_rewards},
               {"kinds", plan.kinds},
               {"counts", counts},
               {"temperature", plan.temperature},
               {"heldout_tasks", plan.heldout_tasks},
               {"heldout_samples", plan.heldout_samples},
               {"heldout_split", plan.heldout_split},
               {"max_attempts", plan.max_attempts},
               {"advantage", to_string(plan.advantage)},
               {"std_epsilon", plan.std_epsilon},
               {"steal_from", plan.steal_from}};
  if (plan.compare) json["compare"] = true;
  if (const Truncation& cut = plan.truncation; cut != Truncation())
    json["truncation"] = {{"top_k", cut.top_k}, {"top_p", cut.top_p}, {"min_p", cut.min_p}};
  if (plan.advantage == AdvantageKind::kPassAtK) json["pass_k"] = plan.pass_k;
  for (const auto& [kind, rule] : plan.advantages) {
    json["advantages"][kind] = {
        {"advantage", to_string(rule.advantage)}, {"std_epsilon", rule.std_epsilon}, {"pass_k", rule.pass_k}};
  }
  if (plan.all_groups) json["all_groups"] = true;
  if (plan.dynamic_sampling > 0) json["dynamic_sampling"] = plan.dynamic_sampling;
  if (plan.leave_out_truncated) json["leave_out_truncated"] = true;
  if (plan.episode_metrics) json["episode_metrics"] = true;
  if (plan.heldout_every > 0) json["heldout_every"] = plan.heldout_every;
  if (plan.branch.ways > 1) {
    json["branch"] = {
        {"ways", plan.branch.ways}, {"first_turn", plan.branch.first_turn}, {"last_turn", plan.branch.last_turn}};
  }
  return json;
}

Result<RunPlan> plan_from_json(const Json& json) {
  try {
    const auto on_lag = TRY(on_lag_named(json.at("on_lag").get<std::string>()));
    const auto advantage = TRY(advantage_kind(json.at("advantage").get<std::string>()));
    RunPlan plan{.seed = json.at("seed").get<uint64_t>(),
                 .steps = json.at("steps").get<int>(),
                 .groups_per_step = json.at("groups_per_step").get<int>(),
                 .group_size = json.at("group_size").get<int>(),
                 .max_lag = json.at("max_lag").get<int>(),
                 .on_lag = on_lag,
                 .deterministic = json.at("deterministic").get<bool>(),
                 .reward = weights_from_json(json.at("reward")),
                 .compare = json.value("compare", false),  // plans of before have none
                 .shuffle_rewards = json.at("shuffle_rewards").get<bool>(),
                 .kinds = json.at("kinds").get<std::vector<std::string>>(),
                 .counts = {},
                 .temperature = json.at("temperature").get<float>(),
                 .truncation = {},
                 .heldout_tasks = json.at("heldout_tasks").get<int>(),
                 .heldout_samples = json.at("heldout_samples").get<int>(),
                 .heldout_split = json.at("heldout_split").get<std::string>(),
                 .heldout_every = json.value("heldout_every", 0),
                 .max_attempts = json.at("max_attempts").get<int>(),
                 .advantage = advantage,
                 .std_epsilon = json.at("std_epsilon").get<double>(),
                 .pass_k = json.value("pass_k", 4),
                 .all_groups = json.value("all_groups", false),
                 .dynamic_sampling = json.value("dynamic_sampling", 0),
                 .leave_out_truncated = json.value("leave_out_truncated", false),
                 .episode_metrics = json.value("episode_metrics", false),
                 .branch = {},
                 .steal_from = json.at("steal_from").get<int>()};
    for (const auto& [kind, count] : json.at("counts").items())
      plan.counts[kind] = {.train = count.at("train").get<uint64_t>(), .heldout = count.at("heldout").get<uint64_t>()};
    if (json.contains("advantages")) {
      for (const auto& [kind, rule] : json.at("advantages").items()) {
        plan.advantages[kind] = {.advantage = TRY(advantage_kind(rule.at("advantage").get<std::string>())),
                                 .std_epsilon = rule.at("std_epsilon").get<double>(),
                                 .pass_k = rule.at("pass_k").get<int>()};
      }
    }
    if (json.contains("truncation")) {
      const Json& cut = json.at("truncation");
      plan.truncation = {.top_k = cut.at("top_k").get<int>(),
                         .top_p = cut.at("top_p").get<float>(),
                         .min_p = cut.at("min_p").get<float>()};
    }
    if (json.contains("branch")) {
      const Json& branch = json.at("branch");
      plan.branch = {.ways = branch.at("ways").get<int>(),
                     .first_turn = branch.at("first_turn").get<int>(),
                     .last_turn = branch.at("last_turn").get<int>()};
    }
    TRY(check(plan));
    return plan;
  } catch (const Json::exception& error) {
    return fail(Status::corrupt(fmt::format("plan cannot be read: {}", error.what())));
  }
}

}  // namespace tandem::rollout
