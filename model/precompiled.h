// The table of SentencePiece that says what characters become (`precompiled_charsmap` of the normaliser Precompiled):
// a double array of the texts that are replaced, and the texts that take their place.
//
// Applied as HF tokenizers does it: a grapheme cluster below six bytes is looked up as a whole, then every character by
// itself; what is found is the entry of the shortest beginning, and it takes the place of all that was looked up.
//
// Thread safety: const methods from any thread.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "base/status.h"

namespace tandem::model {

class Precompiled {
 public:
  // `base64`: what stands in tokenizer.json. Refused where it is not base64, where lengths do not fit, and where the
  // texts are not UTF-8.
  static Result<Precompiled> create(std::string_view base64);

  // `text` must be valid UTF-8.
  Result<std::string> apply(std::string_view text) const;

 private:
  Precompiled() = default;
  std::optional<std::string_view> find(std::string_view text) const;
  void apply_cluster(std::string_view cluster, std::string& out) const;

  std::vector<uint32_t> units_;  // of the double array; not empty
  std::string texts_;            // each ends with a zero
};

}  // namespace tandem::model
