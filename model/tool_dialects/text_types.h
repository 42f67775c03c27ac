// Which types the JSON Schema of a parameter says that its value has, for dialects that write values as texts.
#pragma once

#include <cstdint>
#include <optional>

#include "base/json.h"

namespace tandem::model {

enum TextType : uint8_t {
  kNullText = 1,
  kBooleanText = 2,
  kIntegerText = 4,
  kFractionText = 8,
  kStringText = 16,
  kArrayText = 32,
  kObjectText = 64,
};

// The types of the parameter `key` as the tool's `parameters` themselves describe it: a bit for each type that `type`,
// `enum`, `const`, `anyOf`, `oneOf`, `allOf` and `$ref` leave. Nothing where they say none: its value is a string.
std::optional<uint8_t> types_of_parameter(const Json& parameters, const std::string& key);

// The bit of a value; of a number without a fraction it is that of integers, however it is written.
uint8_t type_of_value(const Json& value);

}  // namespace tandem::model
