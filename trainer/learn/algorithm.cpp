#include "trainer/learn/algorithm.h"

#include <fmt/format.h>

#include <algorithm>

#include "base/text.h"
#include "trainer/learn/losses/policy_loss.h"

namespace tandem::trainer {

Result<Algorithm> algorithm_named(std::string_view name) {
  const auto names = algorithm_names();
  for (const PolicyLoss* loss : policy_losses()) {
    for (const LossName& entry : loss->names) {
      if (entry.name != name) continue;
      Algorithm a;
      a.name = name;
      a.policy = loss;
      entry.set_defaults(a);
      return a;
    }
  }
  return fail(Status::invalid(fmt::format("algorithm \"{}\" is not known{}", name, did_you_mean(name, names))));
}

std::vector<std::string_view> algorithm_names() {
  std::vector<std::string_view> names;
  for (const PolicyLoss* loss : policy_losses()) {
    for (const LossName& entry : loss->names) names.push_back(entry.name);
  }
  return names;
}

const Algorithm& part_of(const Algorithm& algorithm, size_t part) {
  return part == 0 || part > algorithm.parts.size() ? algorithm : algorithm.parts[part - 1];
}

size_t part_for(const Algorithm& algorithm, std::string_view kind) {
  for (size_t i = 0; i < algorithm.parts.size(); ++i) {
    if (std::ranges::find(algorithm.parts[i].kinds, kind) != algorithm.parts[i].kinds.end()) return i + 1;
  }
  return 0;
}

bool any_part(const Algorithm& algorithm, bool (*has)(const Algorithm&)) {
  return has(algorithm) || std::ranges::any_of(algorithm.parts, has);
}

bool is_function(const Algorithm& algorithm) { return algorithm.policy->is_function; }
bool is_against_sampler(const Algorithm& algorithm) { return algorithm.policy->against_sampler; }

bool needs_reference(const Algorithm& algorithm) {
  return algorithm.kl.estimator != Kl::Estimator::kNone || algorithm.torch.reference ||
         algorithm.own_advantages.reference;
}

bool needs_critic(const Algorithm& algorithm) { return algorithm.advantage == AdvantageKind::kGae; }

bool is_of_whole_batch(const Algorithm& a) {
  return a.policy->is_function || a.policy->choose != nullptr || a.kl.in_reward || a.whiten_advantages ||
         is_of_tokens(a.advantage);
}

}  // namespace tandem::trainer
