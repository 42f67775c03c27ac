// What is done to text before it is cut into pieces (the `normalizer` of tokenizer.json).
//
// Thread safety: const methods from any thread.
#pragma once

#include <string>
#include <string_view>
#include <variant>
#include <vector>

#include "base/json.h"

namespace tandem::model {

class Normalizer {
 public:
  // NFC, NFD, NFKC, NFKD, Lowercase, Prepend, Replace of a string, and Sequences of them; others are refused by name.
  static Result<Normalizer> from_json(const WideJson& json);

  // `text` must be valid UTF-8.
  std::string apply(std::string_view text) const;

  bool empty() const { return steps_.empty(); }

 private:
  enum class Form { kNfc, kNfd, kNfkc, kNfkd };
  struct Lowercase {};
  struct Prepend {
    std::string text;
  };
  struct Replace {
    std::string from;
    std::string to;
  };
  using Step = std::variant<Form, Lowercase, Prepend, Replace>;

  Status add(const WideJson& json);
  static std::string apply_step(const Step& step, std::string text);

  std::vector<Step> steps_;
};

}  // namespace tandem::model
