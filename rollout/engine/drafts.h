// What a sequence will probably say next, from what it has said, and from what its caller foresees.
//
// Three sources: the sequence's own tokens, where their end stands elsewhere in them, the text that the caller
// predicts, and a smaller model (draft_model.h), which Drafts knows nothing of. The answer is followed in the
// prediction token by token; where it departs from it, the place where it comes back is found by its last tokens. A
// draft is a guess and no more: it costs rows of a pass, and changes no token.
//
// Pure: what comes out follows from the tokens that went in. Thread safety: none.
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
  // Another turn begins. An empty prediction is none.
  void begin_turn(std::vector<int32_t> prediction);

  // The answer goes on with `tokens.back()`, of a sequence of `tokens` whose answer began at `turn_start`. True where
  // the prediction has this token at the place that the answer has come to, and no token before it was that one.
  bool said(std::span<const int32_t> tokens, int turn_start);

  // At most `most` tokens to follow `tokens`, none where nothing is known.
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
