#include "trainer/learn/algorithm.h"

#include <fmt/format.h>

#include "base/text.h"

namespace tandem::trainer {

namespace {

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
    {"torch", [](Algorithm& a) { a.policy = Policy::kTorch; }},
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

bool needs_reference(const Algorithm& algorithm) {
  return algorithm.kl.estimator != Kl::Estimator::kNone || algorithm.torch.reference;
}

bool is_of_whole_batch(const Algorithm& a) {
  return a.policy == Policy::kTorch || a.kl.in_reward || a.whiten_advantages || is_of_tokens(a.advantage);
}

}  // namespace tandem::trainer
