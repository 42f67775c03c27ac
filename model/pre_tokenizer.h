// Cuts text into the pieces that a tokenizer's model sees one at a time (the `pre_tokenizer` of tokenizer.json).
//
// Thread safety: const methods from any thread.
#pragma once

#include <functional>
#include <memory>
#include <string_view>
#include <vector>

#include "base/json.h"
#include "model/regex.h"

namespace tandem::model {

// A rule that cuts one piece into several, in order; empty ones are left out.
class PreTokenizerStep {
 public:
  virtual ~PreTokenizerStep() = default;
  virtual Status cut(std::string_view piece, RegexScratch& scratch, std::vector<std::string_view>& out) const = 0;
};

class PreTokenizer {
 public:
  // Split, Digits, ByteLevel, Whitespace, WhitespaceSplit, BertPreTokenizer, Sequences of them; other types are refused
  // by name.
  static Result<PreTokenizer> from_json(const WideJson& json);

  // Pieces of `text`, which must be valid UTF-8; views into it.
  Status cut(std::string_view text, RegexScratch& scratch, std::vector<std::string_view>& out) const;

  // Whether the model's alphabet is bytes (the ByteLevel step).
  bool byte_level() const { return byte_level_; }
  // Whether a text that does not start with a space gets one first.
  bool adds_prefix_space() const { return adds_prefix_space_; }

 private:
  Status add(const WideJson& json);
  std::vector<std::unique_ptr<PreTokenizerStep>> steps_;
  bool byte_level_ = false;
  bool adds_prefix_space_ = false;
};

}  // namespace tandem::model
