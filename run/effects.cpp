#include "run/effects.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <map>

#include "trainer/learn/algorithm_parts.h"
#include "trainer/learn/losses/policy_loss.h"

namespace tandem::run {
namespace {

std::vector<std::string_view> names_of_masks() {
  std::vector<std::string_view> names;
  for (const trainer::PolicyLoss* loss : trainer::policy_losses()) {
    for (const trainer::LossName& entry : loss->names)
      if (loss->has_mask) names.push_back(entry.name);
  }
  return names;
}

// Why each has no effect, where it has none.
std::map<std::string, std::string> reasons_of(const RunConfig& c) {
  std::map<std::string, std::string> reasons;
  const auto unless = [&](bool has_effect, std::initializer_list<const char*> keys, const std::string& why) {
    for (const char* key : keys)
      if (!has_effect) reasons[key] = why;
  };
  const auto& a = c.algorithm;
  unless(a.kl.estimator != "none", {"algorithm.kl.coefficient", "algorithm.kl.clamp", "algorithm.kl.in_reward"},
         "algorithm.kl.estimator is none");
  unless(a.teacher.any(), {"algorithm.teacher.weight", "algorithm.teacher.clamp"},
         "algorithm.teacher names no teacher");
  unless(a.teacher.is_hinted(), {"algorithm.teacher.hint_tokens"}, "algorithm.teacher.hint is empty");
  unless(a.entropy.control.any(), {"algorithm.entropy.step", "algorithm.entropy.most"},
         "algorithm.entropy.target is 0");
  unless(a.entropy.control.step > 0 && a.entropy.control.most > 0, {"algorithm.entropy.target"},
         "algorithm.entropy.step or algorithm.entropy.most is 0");
  unless(a.teacher.weight > 0, {"algorithm.teacher.hint"}, "algorithm.teacher.weight is 0");
  unless(a.teacher.is_remote(),
         {"algorithm.teacher.model", "algorithm.teacher.key_env", "algorithm.teacher.key_file",
          "algorithm.teacher.seconds", "algorithm.teacher.retries", "algorithm.teacher.concurrency"},
         "algorithm.teacher.url is empty");
  unless(c.run.standby_takes_over == "majority", {"run.standby_patience"}, "run.standby_takes_over is not majority");
  unless(!a.demonstrations.data.empty(), {"algorithm.demonstrations.samples", "algorithm.demonstrations.coefficient"},
         "algorithm.demonstrations.data names none");
  unless(a.correction.kind != "none",
         {"algorithm.correction.level", "algorithm.correction.low", "algorithm.correction.high"},
         "algorithm.correction.kind is none");
  unless(a.correction.kind != "tis", {"algorithm.correction.low"},
         "algorithm.correction.kind is tis, which holds weights above and drops none");
  const auto algorithm = algorithm_of(c);
  if (algorithm) {
    unless(algorithm->aggregation == trainer::Aggregation::kSumOverLength, {"algorithm.aggregation_length"},
           "algorithm.aggregation is not sum_over_length");
    const AdvantageKind advantage = algorithm->advantage;
    unless(!trainer::is_of_whole_batch(*algorithm), {"trainer.dynamic_sampling"},
           is_of_tokens(advantage)
               ? fmt::format("algorithm.advantage is {}, to which groups of equal rewards are a signal, too",
                             to_string(advantage))
               : "advantages are of the whole batch, to which groups of equal rewards are a signal, too");
    unless(advantage == AdvantageKind::kPassAtK, {"algorithm.pass_at_k.k"},
           fmt::format("algorithm.advantage is {}", to_string(advantage)));
    unless(advantage == AdvantageKind::kGrpo || advantage == AdvantageKind::kMaxRl ||
               advantage == AdvantageKind::kPassAtK || (advantage == AdvantageKind::kGigpo && algorithm->gigpo.scaled),
           {"algorithm.std_epsilon"},
           fmt::format("algorithm.advantage is {}, which divides by no deviation", to_string(advantage)));
    unless(advantage == AdvantageKind::kGigpo, {"algorithm.gigpo.weight", "algorithm.gigpo.std"},
           fmt::format("algorithm.advantage is {}", to_string(advantage)));
    unless(
        advantage == AdvantageKind::kReturns || advantage == AdvantageKind::kGae || advantage == AdvantageKind::kGigpo,
        {"algorithm.gamma"},
        fmt::format("algorithm.advantage is {}, which {}", to_string(advantage),
                    advantage == AdvantageKind::kTorch ? "has options of its own" : "is of whole episodes"));
    unless(is_function(*algorithm) || advantage == AdvantageKind::kTorch, {"algorithm.seconds"},
           "neither the loss nor the advantages are a function of one's own");
    unless(
        advantage == AdvantageKind::kGae,
        {"algorithm.lambda", "algorithm.value.learning_rate", "algorithm.value.coefficient", "algorithm.value.trunk"},
        fmt::format("algorithm.advantage is {}, which has no critic", to_string(advantage)));
    const trainer::PolicyLoss& loss = *algorithm->policy;
    const std::string named = fmt::format("algorithm.name is {}", a.name);
    unless(loss.has_mask, {"algorithm.mask_low", "algorithm.mask_high", "algorithm.penalty"},
           fmt::format("{}, and these are of {}", named, fmt::join(names_of_masks(), " and ")));
    const std::string without_clip =
        named + (loss.is_function ? ", whose function has parameters of its own: algorithm.options"
                 : loss.has_mask  ? ", which masks and does not clip"
                                  : ", whose loss has no clip");
    unless(loss.has_clip, {"algorithm.clip_low", "algorithm.clip_high", "algorithm.dual_clip"}, without_clip);
    unless(loss.has_dual_clip || !loss.has_clip, {"algorithm.dual_clip"}, named + ", whose loss has no such bound");
    for (const std::string& key : trainer::keys_of_other_losses(*algorithm))
      reasons[key] = fmt::format("algorithm.name is {}", a.name);
  }
  unless(c.reward.effort > 0,
         {"reward.effort_token", "reward.effort_call", "reward.effort_turn", "reward.effort_k", "reward.effort_q"},
         "reward.effort is 0");
  const auto& own = c.reward.own;
  unless(!own.command.empty(), {"reward.place"}, "reward.command is empty");
  unless(!own.http.empty(), {"reward.key_env", "reward.key_file"}, "reward.http is empty");
  unless(!own.judge.url.empty(),
         {"reward.judge_model", "reward.judge_rubric", "reward.judge_key_env", "reward.judge_key_file",
          "reward.judge_pairwise", "reward.judge_rivals", "reward.judge_bytes", "reward.judge_price"},
         "reward.judge is empty");
  unless(own.judge.pairwise, {"reward.judge_rivals"}, "reward.judge_pairwise is false");
  unless(own.any(), {"reward.seconds", "reward.retries", "reward.concurrency", "reward.cache", "reward.output_bytes"},
         "the run has no reward of its own");
  const auto& t = c.trainer;
  unless(t.optimizer == "muon", {"trainer.momentum"}, "trainer.optimizer is " + t.optimizer);
  unless(c.run.relays > 0, {"run.relay_fanout", "run.relay_seconds"}, "run.relays is 0");
  unless(!t.weight_store.place.empty(), {"trainer.weight_store_seconds"}, "trainer.weight_store names no place");
  unless(t.weight_store.is_bucket(), {"trainer.weight_store_endpoint", "trainer.weight_store_region"},
         "trainer.weight_store names no bucket");
  unless(t.epochs > 1 || t.minibatches > 1, {"trainer.kl_stop"},
         "a step has one update, which begins at the policy before the step");
  unless(t.schedule != "constant", {"trainer.final_share"}, "trainer.schedule is constant");
  unless(!c.algorithm.teacher.any(), {"trainer.dynamic_sampling"},
         "algorithm.teacher names a model, which gives groups of equal rewards a signal");
  unless(!c.run.deterministic, {"trainer.on_lag"}, "run.deterministic allows no lag");
  unless(a.branch_credit == "tree", {"algorithm.branch_local"}, "algorithm.branch_credit is " + a.branch_credit);
  unless(c.rollout.branch.ways > 1,
         {"rollout.branch.first_turn", "rollout.branch.last_turn", "algorithm.branch_credit", "algorithm.branch_local"},
         "rollout.branch.ways is 1");
  unless(c.lora.rank > 0, {"lora.alpha", "lora.use_rslora", "lora.targets", "lora.start"}, "lora.rank is 0");
  unless(!c.tasks.path.empty(), {"tasks.recipes", "tasks.heldout_share"}, "tasks.path names no set of tasks");
  unless(c.tasks.path.empty(), {"tasks.kinds"}, "tasks.path names a set, whose kinds are chosen by tasks.set_kinds");
  unless(c.tasks.heldout > 0, {"tasks.heldout_samples", "tasks.heldout_every", "tasks.floors"}, "tasks.heldout is 0");
  unless(c.tasks.heldout_every <= c.run.steps, {"tasks.heldout_every"},
         fmt::format("the run has {} steps", c.run.steps));
  unless(!c.env.external.empty(), {"env.external_seconds", "env.external_programs"}, "env.external names none");
  unless(c.rollout.workers > 1, {"rollout.steal_from"}, "there is one rollout worker, and nobody to steal from");
  unless(c.env.hosts != std::vector<std::string>{std::string(kLocalHost)}, {"env.key"},
         "env.hosts names none but local");
  return reasons;
}

// Checks a line of algorithm.kinds.
std::vector<std::string> without_effect(const RunConfig& config, const std::string& line) {
  auto part = trainer::keys_of_part(line);
  RunConfig of_part = config, usual;
  static_cast<trainer::AlgorithmConfig&>(of_part.algorithm) = std::move(part.config);
  of_part.algorithm.teacher.path = config.algorithm.teacher.path;
  of_part.algorithm.teacher.endpoint = config.algorithm.teacher.endpoint;
  of_part.algorithm.teacher.hint = config.algorithm.teacher.hint;
  of_part.algorithm.teacher.hint_tokens = config.algorithm.teacher.hint_tokens;
  const auto reasons = reasons_of(of_part);
  const Schema values = schema_of(of_part), defaults = schema_of(usual);
  std::vector<std::string> sentences;
  for (size_t i = 0; i < values.fields().size(); ++i) {
    const Field& field = values.fields()[i];
    const auto reason = reasons.find(field.path);
    if (reason == reasons.end() || std::ranges::find(part.given, field.path) == part.given.end() ||
        field.get() == defaults.fields()[i].get())
      continue;
    sentences.push_back(fmt::format("\"{}\": {} has no effect: {}", line, field.path, reason->second));
  }
  return sentences;
}

}  // namespace

std::vector<std::string> without_effect(const RunConfig& config, const Schema& schema) {
  RunConfig usual;
  Schema defaults = schema_of(usual);
  const auto reasons = reasons_of(config);
  std::vector<std::string> sentences;
  for (size_t i = 0; i < schema.fields().size(); ++i) {
    const Field& field = schema.fields()[i];
    const auto reason = reasons.find(field.path);
    const std::string place = schema.origin(field.path);
    // A value that is the default's may stand there to say so.
    if (reason == reasons.end() || place.empty() || place == "default" || field.get() == defaults.fields()[i].get())
      continue;
    sentences.push_back(fmt::format("{}: {} has no effect: {}", place, field.path, reason->second));
  }
  for (const std::string& line : config.algorithm.kinds) {
    for (std::string& said : without_effect(config, line)) {
      sentences.push_back(fmt::format("{}: algorithm.kinds: {}", schema.origin("algorithm.kinds"), std::move(said)));
    }
  }
  if (config.run.relays > config.rollout.workers) {
    sentences.push_back(
        fmt::format("{}: run.relays is {}, and rollout.workers is {}: relays beyond these have no rollout",
                    schema.origin("run.relays"), config.run.relays, config.rollout.workers));
  }
  return sentences;
}

}  // namespace tandem::run
