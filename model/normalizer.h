// Normalizes text before it is split (the `normalizer` of tokenizer.json).
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
#include "model/changed_places.h"
#include "model/precompiled.h"
#include "model/regex.h"

namespace tandem::model {

class Normalizer {
 public:
  // All types of HF tokenizers 0.23, and Sequences of them; others are refused by name.
  static Result<Normalizer> from_json(const Json& json);

  // `text` must be valid UTF-8. Fails only where a regular expression of the file backtracks without end, or matches
  // nothing between two characters.
  Result<std::string> apply(std::string_view text) const;
  // The same, and for each step that changed the text where its bytes came from, appended to `places`.
  Result<std::string> apply(std::string_view text, std::vector<ChangedPlaces>& places) const;

  bool empty() const { return steps_.empty(); }

  // Whether the first character of a normalised text always comes from the first of the text.
  bool keeps_start() const { return keeps_start_; }

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
  struct ReplaceMatches {
    std::shared_ptr<const Regex> pattern;
    std::string to;
  };
  struct Strip {
    bool left;
    bool right;
  };
  struct StripMarks {
    std::shared_ptr<const icu::UnicodeSet> marks;
  };
  struct Nmt {};
  struct BytesAsCharacters {};  // each byte as ByteLevel writes it
  struct CleanText {            // without controls, with plain spaces
    std::shared_ptr<const BertCharacters> characters;
  };
  struct SpaceIdeographs {};
  struct StripAccents {
    std::shared_ptr<const BertCharacters> characters;
  };
  using Step =
      std::variant<std::shared_ptr<const Form>, std::shared_ptr<const Precompiled>, Lowercase, Prepend, Replace,
                   ReplaceMatches, Strip, StripMarks, Nmt, BytesAsCharacters, CleanText, SpaceIdeographs, StripAccents>;

  Status add(const Json& json);
  Status add_bert(const Json& json);
  Status add_replace(const Json& json);
  static Result<std::string> apply_step(const Step& step, std::string text);
  static Result<ChangedPlaces> places_of(const Step& step, std::string_view before, std::string_view after);

  std::vector<Step> steps_;
  bool keeps_start_ = true;
};

}  // namespace tandem::model
