// Values of a config.json, each checked as it is read; an error names key and value.
//
// A key whose value is null counts as absent. A reader refers to the object, which must outlive it.
#pragma once

#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "base/json.h"
#include "base/status.h"
#include "model/token.h"

namespace tandem::model {

bool has(const Json& json, std::string_view key);

class ConfigReader {
 public:
  explicit ConfigReader(const Json& json) : json_(json) {}

  // A whole number of at least 1; `otherwise` where the key is absent, an error where that is absent too.
  Result<int> size(std::string_view key, std::optional<int> otherwise = std::nullopt) const;
  // A whole number that may be 0.
  Result<int> count(std::string_view key, int otherwise) const;
  // Above 0.
  Result<double> number(std::string_view key, std::optional<double> otherwise = std::nullopt) const;
  Result<bool> flag(std::string_view key, bool otherwise) const;
  Result<std::string> text(std::string_view key, std::string otherwise) const;
  // One number or a list of them, none negative; `what` they are goes into the error.
  Result<std::vector<int32_t>> numbers(std::string_view key, std::string_view what) const;
  Result<std::vector<TokenId>> tokens(std::string_view key) const { return numbers(key, "token id"); }

 private:
  const Json& json_;
};

}  // namespace tandem::model
