// Drafts the next tokens of a sequence from its own tokens and from a prediction of its caller.
//
// Three sources: the sequence's own tokens, where their end stands elsewhere in them, the text that the caller
// predicts, and a smaller model (draft_model.h), which Drafts knows nothing of. The answer is matched against the
// prediction token by token; where it diverges, its last tokens find the place to resume. A draft costs rows of a pass
// and changes no token.
//
// A pure function of the tokens. Thread safety: none.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <vector>

#include "rollout/engine/token_lookup.h"

namespace tandem::rollout {

enum class DraftSource : uint8_t { kOwnTokens, kPrediction, kModel };
inline constexpr int kDraftSources = 3;

struct Draft {
  std::vector<int32_t> tokens;
  DraftSource source = DraftSource::kOwnTokens;
  int matched = 0;  // tokens before it that are as they were where it is from, or as the model had guessed them
  double seconds_of_token = 0;  // what guessing one took, of the device
};

class Drafts {
 public:
  // Begins a turn; an empty prediction means none.
  void begin_turn(std::vector<int32_t> prediction);

  // Takes `tokens.back()` as the next token of the answer, which began at `turn_start`. True where it matches the
  // prediction at the current place, and is the first token to match that place.
  bool said(std::span<const int32_t> tokens, int turn_start);

  // Drafts at most `most` tokens after `tokens`; none where nothing matches.
  Draft next(std::span<const int32_t> tokens, int most);

 private:
  TokenMatch find_nearby(std::span<const int32_t> answer) const;

  TokenLookup own_;
  std::vector<int32_t> prediction_;
  std::optional<TokenLookup> predicted_;  // n-grams of the prediction
  std::vector<bool> used_;                // by place in the prediction: the answer has said it
  int at_ = 0;                            // in the prediction, of the token that should come next
  int matched_ = 0;                       // tokens that have come as predicted since the last that did not
  bool lost_ = false;                     // the answer has departed from the prediction
};

}  // namespace tandem::rollout
