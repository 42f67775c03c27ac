// An n-gram index of a growing token sequence: finds where its last tokens occurred before.
//
// Each place is entered in a chain of those with the same last tokens before them, so that a look-up reads a bounded
// number of candidates, whatever the length of the sequence. A few integers for each token.
//
// Thread safety: none. The caller gives the tokens with each call; those that were added before must not have changed.
#pragma once

#include <cstdint>
#include <span>
#include <unordered_map>
#include <vector>

namespace tandem::rollout {

struct TokenMatch {
  int at = 0;      // place of the token that would be next
  int length = 0;  // tokens before it that are equal, at most kLongestMatch; 0: nothing was found
};

class TokenLookup {
 public:
  static constexpr int kShortestMatch = 3, kLongestMatch = 32;

  // Adds new tokens; `tokens` begins with those of earlier calls. The place behind the last token is not entered:
  // nothing follows there.
  void grow(std::span<const int32_t> tokens);

  // The place in `tokens` (all added by `grow`) with the longest match of the end of `end` before it; of equal matches
  // the one nearest to `near`. `end` may be `tokens` themselves.
  TokenMatch find(std::span<const int32_t> tokens, std::span<const int32_t> end, int near) const;

 private:
  static uint64_t key_of(std::span<const int32_t> last);

  std::unordered_map<uint64_t, int> newest_;  // place by the tokens before it
  std::vector<int> older_;                    // by place, the one before it in its chain; -1: none
};

}  // namespace tandem::rollout
