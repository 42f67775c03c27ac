#include "trainer/learn/algorithm.h"

#include <fmt/format.h>

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

bool is_function(const Algorithm& algorithm) { return algorithm.policy->is_function; }
bool is_against_sampler(const Algorithm& algorithm) { return algorithm.policy->against_sampler; }

bool needs_reference(const Algorithm& algorithm) {
  return algorithm.kl.estimator != Kl::Estimator::kNone || algorithm.torch.reference;
}

bool is_of_whole_batch(const Algorithm& a) {
  return a.policy->is_function || a.policy->choose != nullptr || a.kl.in_reward || a.whiten_advantages ||
         is_of_tokens(a.advantage);
}

}  // namespace tandem::trainer
