#include "trainer/learn/algorithm.h"

#include <fmt/format.h>

#include "base/text.h"
#include "trainer/learn/algorithm_names.h"

namespace tandem::trainer {

namespace {

using rollout::AdvantageKind;

struct Defaults {
  std::string_view name;
  void (*set)(Algorithm&);
};
constexpr Defaults kDefaults[] = {
    {"ppo",
     [](Algorithm& a) {
       a.advantage = AdvantageKind::kGae;
       a.whiten_advantages = true;
     }},
    {"grpo", [](Algorithm& a) { a.advantage = AdvantageKind::kGrpo; }},
    {"dr_grpo", [](Algorithm&) {}},
    {"dapo",
     [](Algorithm& a) {
       a.advantage = AdvantageKind::kGrpo;
       a.clip_high = 0.28;
     }},
    {"gspo",
     [](Algorithm& a) {
       a.policy = Policy::kSequence;
       a.advantage = AdvantageKind::kGrpo;
       a.clip_low = 3e-4;
       a.clip_high = 4e-4;
       a.aggregation = Aggregation::kSeqMeanTokenMean;
     }},
    {"cispo",
     [](Algorithm& a) {
       a.policy = Policy::kWeighted;
       a.advantage = AdvantageKind::kGrpo;
       a.clip_low = 1;  // a ratio is above 0 in any case: no lower clip, as in the paper
     }},
    {"rloo", [](Algorithm& a) { a.advantage = AdvantageKind::kRloo; }},
    {"reinforce++",
     [](Algorithm& a) {
       a.advantage = AdvantageKind::kReturns;
       a.whiten_advantages = true;
     }},
    {"dppo", [](Algorithm& a) { a.policy = Policy::kMasked; }},
};

}  // namespace

Result<Algorithm> algorithm_named(std::string_view name) {
  std::vector<std::string_view> names;
  for (const auto& defaults : kDefaults) {
    if (defaults.name == name) {
      Algorithm a;
      a.name = name;
      defaults.set(a);
      return a;
    }
    names.push_back(defaults.name);
  }
  return fail(Status::invalid(fmt::format("algorithm \"{}\" is not known{}", name, did_you_mean(name, names))));
}

Json to_json(const Algorithm& a) {
  Json json = {{"name", a.name},
               {"advantage", rollout::to_string(a.advantage)},
               {"std_epsilon", a.std_epsilon},
               {"gamma", a.gamma},
               {"lambda", a.lambda},
               {"whiten_advantages", a.whiten_advantages},
               {"clip_low", a.clip_low},
               {"clip_high", a.clip_high},
               {"dual_clip", a.dual_clip > 0 ? Json(a.dual_clip) : Json()},
               {"mask_low", a.mask_low},
               {"mask_high", a.mask_high},
               {"penalty", a.penalty},
               {"aggregation", kAggregations.name_of(a.aggregation)},
               {"aggregation_length", a.aggregation_length}};
  json["correction"] = {{"kind", kCorrections.name_of(a.correction.kind)},
                        {"level", kLevels.name_of(a.correction.sequence_level)},
                        {"low", a.correction.low},
                        {"high", a.correction.high}};
  json["kl"] = {{"estimator", kEstimators.name_of(a.kl.estimator)},
                {"coefficient", a.kl.coefficient},
                {"clamp", a.kl.clamp > 0 ? Json(a.kl.clamp) : Json()},
                {"in_reward", a.kl.in_reward}};
  json["entropy"] = {{"coefficient", a.entropy}};
  return json;
}

}  // namespace tandem::trainer
