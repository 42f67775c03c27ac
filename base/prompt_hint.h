// A hint in a prompt: tokens that a model may be shown in place of some of its prompt, to say what it would have said
// with them.
//
// Thread safety: as any value.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "base/json.h"
#include "base/status.h"

namespace tandem {

inline constexpr size_t kMostHintTokens = 16384;  // of what is read

struct PromptHint {
  uint32_t at = 0;              // the place of the first token that it replaces
  uint32_t replaced = 0;        // tokens of the prompt that it stands in place of
  std::vector<int32_t> tokens;  // empty: there is none
  friend bool operator==(const PromptHint&, const PromptHint&) = default;

  bool empty() const { return tokens.empty(); }
  // Behind the last token that it replaces.
  size_t end() const { return size_t{at} + replaced; }
  // Whether it replaces tokens of a prompt of that length alone, and leaves some of it behind.
  bool fits(size_t prompt) const { return empty() || (end() < prompt && tokens.size() <= kMostHintTokens); }
};

// What makes `hinted` of `prompt`: the tokens between what both begin with and what both end with. Empty where nothing
// is added.
PromptHint hint_between(std::span<const int32_t> prompt, std::span<const int32_t> hinted);

// {"at", "replaced", "tokens"}, and back; kCorrupt where it is none, or has more than kMostHintTokens.
Json to_json(const PromptHint& hint);
Result<PromptHint> read_prompt_hint(const Json& json);

}  // namespace tandem
