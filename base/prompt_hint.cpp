#include "base/prompt_hint.h"

#include <algorithm>
#include <utility>

namespace tandem {

namespace {

bool is_within(const Json& number, uint64_t most) {
  if (number.is_number_unsigned()) return number.get<uint64_t>() <= most;
  return number.is_number_integer() && number.get<int64_t>() >= 0 &&
         static_cast<uint64_t>(number.get<int64_t>()) <= most;
}

}  // namespace

PromptHint hint_between(std::span<const int32_t> prompt, std::span<const int32_t> hinted) {
  const size_t most = std::min(prompt.size(), hinted.size());
  size_t begin = 0, end = 0;
  while (begin < most && prompt[begin] == hinted[begin]) ++begin;
  while (end < most - begin && prompt[prompt.size() - 1 - end] == hinted[hinted.size() - 1 - end]) ++end;
  const auto tokens = hinted.subspan(begin, hinted.size() - begin - end);
  if (tokens.empty()) return {};
  return {.at = static_cast<uint32_t>(begin),
          .replaced = static_cast<uint32_t>(prompt.size() - begin - end),
          .tokens = {tokens.begin(), tokens.end()}};
}

Json to_json(const PromptHint& hint) { return {{"at", hint.at}, {"replaced", hint.replaced}, {"tokens", hint.tokens}}; }

Result<PromptHint> read_prompt_hint(const Json& json) {
  const auto wrong = [] { return fail(Status::corrupt("a hint is no place, length and list of tokens")); };
  if (!json.is_object()) return wrong();
  PromptHint hint;
  for (auto [name, number] : {std::pair("at", &hint.at), std::pair("replaced", &hint.replaced)}) {
    const Json value = json.value(name, Json());
    if (!is_within(value, UINT32_MAX)) return wrong();
    *number = value.get<uint32_t>();
  }
  const Json tokens = json.value("tokens", Json());
  if (!tokens.is_array() || tokens.size() > kMostHintTokens) return wrong();
  for (const Json& token : tokens) {
    if (!is_within(token, INT32_MAX)) return wrong();
    hint.tokens.push_back(token.get<int32_t>());
  }
  return hint;
}

}  // namespace tandem
