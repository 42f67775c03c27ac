// The answer of a reward program: terms by name, and optionally a number for each message of the model.
//
// A pure function of foreign bytes.
#pragma once

#include <map>
#include <string>
#include <string_view>
#include <vector>

#include "base/status.h"

namespace tandem::envs {

struct RewardAnswer {
  std::map<std::string, double> terms;
  std::vector<double> turns;  // one for each message of the model, or none
  friend bool operator==(const RewardAnswer&, const RewardAnswer&) = default;
};

inline constexpr size_t kMostRewardTerms = 64;
inline constexpr double kLargestRewardTerm = 1e6;

// A name of a term: letters, digits, `_`, `-`, `.`, at most 64 of them.
bool is_term_name(std::string_view name);

// {"terms": {NAME: NUMBER}, "turns": [NUMBER]}, the second if it wants to. kCorrupt, in words, for everything else:
// other keys, no terms, more than kMostRewardTerms, numbers that are not finite or beyond kLargestRewardTerm, turns
// that are not as many as `turns`, bytes that are no UTF-8.
Result<RewardAnswer> read_reward_answer(std::string_view text, size_t turns);

}  // namespace tandem::envs
