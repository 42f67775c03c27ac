// What is done to text before it is cut into pieces (the `normalizer` of tokenizer.json).
//
// The normal forms are those of Unicode 9, the tables of HF tokenizers: characters that came later stay as they are,
// where a newer library would change them and with them the ids.
//
// Thread safety: const methods from any thread.
#pragma once

#include <memory>
#include <string>
#include <string_view>
#include <variant>
#include <vector>

#include "base/json.h"
#include "model/bert_characters.h"

namespace tandem::model {

class Normalizer {
 public:
  // NFC, NFD, NFKC, NFKD, Lowercase, Prepend, Replace of a string, BertNormalizer, and Sequences of them; others are
  // refused by name.
  static Result<Normalizer> from_json(const WideJson& json);

  // `text` must be valid UTF-8.
  std::string apply(std::string_view text) const;

  bool empty() const { return steps_.empty(); }

 private:
  class Form;
  struct Lowercase {};
  struct Prepend {
    std::string text;
  };
  struct Replace {
    std::string from;
    std::string to;
  };
  struct CleanText {  // without controls, with plain spaces
    std::shared_ptr<const BertCharacters> characters;
  };
  struct SpaceIdeographs {};
  struct StripAccents {
    std::shared_ptr<const BertCharacters> characters;
  };
  using Step =
      std::variant<std::shared_ptr<const Form>, Lowercase, Prepend, Replace, CleanText, SpaceIdeographs, StripAccents>;

  Status add(const WideJson& json);
  Status add_bert(const WideJson& json);
  static std::string apply_step(const Step& step, std::string text);

  std::vector<Step> steps_;
};

}  // namespace tandem::model
