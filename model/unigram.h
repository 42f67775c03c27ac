// Unigram encoding of one piece of text: of all ways to cut it into tokens, the one whose scores add up to the most
// (Kudo 2018), found by Viterbi's algorithm with the sums and the ties of HF tokenizers.
//
// A character that no token stands for counts as unknown, ten below the lowest score. Unknown ones in a row are one
// piece: that is a token where its text happens to be one, its bytes' tokens <0x00>..<0xFF> where byte_fallback is set
// and all of them exist, else the unknown token.
//
// Thread safety: const methods from any thread.
#pragma once

#include <array>
#include <cstdint>
#include <string>
#include <string_view>
#include <unordered_map>
#include <vector>

#include "base/json.h"
#include "model/token.h"

namespace tandem::model {

class Unigram {
 public:
  // The `model` of a tokenizer.json: vocab (pairs of text and score, by id), unk_id, byte_fallback. Refused: an empty
  // or oversized vocabulary, scores that are no finite numbers, an unk_id that is absent or no id of vocab.
  static Result<Unigram> from_json(const Json& model);
  // A copy's views would point into the original.
  Unigram(Unigram&&) = default;
  Unigram& operator=(Unigram&&) = default;

  // `piece` must be valid UTF-8. The bytes of it that each token stands for are appended to `lengths`, where that is
  // not null; the tokens of bytes stand for one each. Time is at most the bytes times the longest token's.
  void encode(std::string_view piece, std::vector<TokenId>& out, std::vector<size_t>* lengths = nullptr) const;

  const std::vector<std::string>& tokens() const { return tokens_; }

 private:
  // A place in the tree of all tokens' texts. Children stand in a row, by rising label.
  struct Node {
    uint32_t first_child = 0;
    uint16_t children = 0;
    uint8_t label = 0;
    TokenId id = -1;
  };
  struct Best {
    double score = 0;
    size_t begin = kNowhere;
    TokenId id = 0;
  };
  static constexpr size_t kNowhere = SIZE_MAX;

  Unigram() = default;
  void grow();
  const Node* child(const Node& node, uint8_t label) const;
  std::vector<Best> best_ends(std::string_view piece) const;
  void emit_unknown(std::string_view text, std::vector<TokenId>& out, std::vector<size_t>* lengths) const;

  std::vector<std::string> tokens_;
  std::vector<double> scores_;                         // by id
  std::unordered_map<std::string_view, TokenId> ids_;  // views into tokens_; of equal texts the last
  std::vector<Node> nodes_;
  std::array<TokenId, 256> byte_tokens_{};  // -1 where there is none
  TokenId unknown_ = 0;
  double unknown_score_ = 0;
  bool byte_fallback_ = false;
};

}  // namespace tandem::model
