// How an episode ended. Only the first three say anything about the policy and have a reward.
#pragma once

#include <array>
#include <cstdint>
#include <string_view>

#include "base/status.h"

namespace tandem::rollout {

enum class Outcome : uint8_t {
  kCompleted,    // the model ended it, or what the task asked for was done
  kTruncated,    // it ran into its limit of turns or tokens
  kPolicyError,  // the model's last message could not be used
  kInfraError,   // a sandbox, process or message was lost
  kTimeout,      // its deadline passed
  kCancelled,    // the run ended or took it back
};
inline constexpr std::array<std::string_view, 6> kOutcomeNames = {"completed",   "truncated", "policy_error",
                                                                  "infra_error", "timeout",   "cancelled"};
inline std::string_view to_string(Outcome outcome) { return kOutcomeNames[static_cast<size_t>(outcome)]; }
Result<Outcome> outcome_from(std::string_view name);
inline bool is_of_policy(Outcome outcome) { return outcome <= Outcome::kPolicyError; }

}  // namespace tandem::rollout
