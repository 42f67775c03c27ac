// JSON values in the order in which they were written, and reading them from outside without surprises.
#pragma once

#include <initializer_list>
#include <nlohmann/json.hpp>
#include <string_view>

#include "base/status.h"

namespace tandem {

using Json = nlohmann::ordered_json;

// Parses one value. Duplicate keys, nesting beyond 64, and anything after the value are errors that name line and
// column.
Result<Json> parse_json(std::string_view text);

// The same for objects with thousands of keys (vocabularies, tensor lists): keys are sorted, and found in log time
// where Json looks through all of them.
using WideJson = nlohmann::json;
Result<WideJson> parse_wide_json(std::string_view text);

// One line; bytes that are not UTF-8 become U+FFFD rather than an exception.
std::string dump_json(const Json& value);
std::string dump_json(const WideJson& value);

// The format of a file of ours by the key "format" of its JSON; 1 where it is missing. A program reads `newest` and the
// one before; others are kInvalid, with both numbers in the message.
Result<int> format_of(const Json& object, int newest);

// The keys of `object` must be among `allowed`; the error names the first stranger and the nearest allowed key.
Status check_keys(const Json& object, std::initializer_list<std::string_view> allowed);

}  // namespace tandem
