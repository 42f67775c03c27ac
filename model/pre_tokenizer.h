// Cuts text into the pieces that a tokenizer's model sees one at a time (the `pre_tokenizer` of tokenizer.json).
//
// Thread safety: const methods from any thread.
#pragma once

#include <functional>
#include <memory>
#include <optional>
#include <string>
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

// How SentencePiece writes spaces: by a mark, which also stands before a piece that begins a word.
struct Metaspace {
  enum class Prepend : uint8_t { kNever, kFirst, kAlways };  // kFirst: only where a text begins
  std::string mark = "\xe2\x96\x81";                         // one character
  Prepend prepend = Prepend::kAlways;
  bool split = true;  // before every space and mark

  // Reads a pre-tokenizer or a decoder of type Metaspace.
  static Result<Metaspace> from_json(const Json& json);

  // Whether `piece`, which is not empty, gets a mark first. `at_start`: it begins where the whole text does.
  bool prepends(std::string_view piece, bool at_start) const;
  // With marks in place of spaces.
  std::string written(std::string_view piece, bool at_start) const;
};

class PreTokenizer {
 public:
  // All types of HF tokenizers 0.23 and Sequences of them.
  static Result<PreTokenizer> from_json(const Json& json);

  // Pieces of `text`, which must be valid UTF-8; views into it.
  Status cut(std::string_view text, RegexScratch& scratch, std::vector<std::string_view>& out) const;

  // Whether the model's alphabet is bytes (the ByteLevel step).
  bool byte_level() const { return byte_level_; }
  // Whether a text that does not start with a space gets one first.
  bool adds_prefix_space() const { return adds_prefix_space_; }
  // Where present, the model sees each piece as it writes it. It is the last step.
  const std::optional<Metaspace>& metaspace() const { return metaspace_; }
  // Whether there are steps before it that cut.
  bool cuts_before_metaspace() const { return cuts_before_metaspace_; }

 private:
  Status add(const Json& json);
  // Reads any type but Sequence, ByteLevel and Metaspace.
  static Result<std::unique_ptr<PreTokenizerStep>> step_of(const std::string& type, const Json& json);
  std::vector<std::unique_ptr<PreTokenizerStep>> steps_;
  bool byte_level_ = false;
  bool adds_prefix_space_ = false;
  std::optional<Metaspace> metaspace_;
  bool cuts_before_metaspace_ = false;
};

}  // namespace tandem::model
