#include "envs/rewards/reward_answer.h"

#include <fmt/format.h>

#include <algorithm>
#include <cctype>
#include <cmath>

#include "base/json.h"
#include "base/text.h"

namespace tandem::envs {
namespace {

constexpr const char* kShape = R"(, where {"terms": {"NAME": NUMBER}} is expected)";

Result<double> number_of(const Json& json, const std::string& what) {
  if (!json.is_number()) return fail(Status::corrupt(fmt::format("{} is {}, not a number", what, json.type_name())));
  const double value = json.get<double>();
  if (std::isfinite(value) && std::abs(value) <= kLargestRewardTerm) return value;
  return fail(Status::corrupt(fmt::format("{} is {}; it must be within {:.0f}", what, value, kLargestRewardTerm)));
}

}  // namespace

bool is_term_name(std::string_view name) {
  constexpr size_t kLongest = 64;
  return !name.empty() && name.size() <= kLongest && std::all_of(name.begin(), name.end(), [](char c) {
    return std::isalnum(static_cast<unsigned char>(c)) || c == '_' || c == '-' || c == '.';
  });
}

Result<RewardAnswer> read_reward_answer(std::string_view text, size_t turns) {
  if (trim(text).empty()) return fail(Status::corrupt(fmt::format("answered nothing{}", kShape)));
  const auto json = parse_json(text);
  if (!json) return fail(Status::corrupt(fmt::format("answered no JSON: {}", json.error().message())));
  if (!json->is_object() || !json->contains("terms") || !json->at("terms").is_object())
    return fail(Status::corrupt(fmt::format("answered without terms{}", kShape)));
  RewardAnswer answer;
  for (const auto& [key, value] : json->items()) {
    if (key != "terms" && key != "turns")
      return fail(
          Status::corrupt(fmt::format("answered with an unknown key {}", key) + did_you_mean(key, {"terms", "turns"})));
  }
  if (json->at("terms").size() > kMostRewardTerms)
    return fail(Status::corrupt(
        fmt::format("answered {} terms, at most {} can be", json->at("terms").size(), kMostRewardTerms)));
  for (const auto& [name, value] : json->at("terms").items()) {
    if (!is_term_name(name))
      return fail(Status::corrupt(fmt::format("\"{}\" is no name of a term: letters, digits, _ - . alone", name)));
    answer.terms[name] = TRY(number_of(value, "the term " + name));
  }
  if (!json->contains("turns")) return answer;
  const Json& list = json->at("turns");
  if (!list.is_array() || list.size() != turns) {
    return fail(
        Status::corrupt(fmt::format("turns must be a list of {} numbers, one for each message of the model", turns)));
  }
  for (const Json& value : list)
    answer.turns.push_back(TRY(number_of(value, fmt::format("turn {}", answer.turns.size()))));
  return answer;
}

}  // namespace tandem::envs
