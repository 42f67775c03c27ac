// Helpers of the dialect parsers.
#pragma once

#include <initializer_list>

#include "model/tool_dialect.h"

namespace tandem::model {

// Puts a ParsedMessage together, calls and malformed ones in the order of the text.
class Collector {
 public:
  explicit Collector(std::string_view text) : text_(text) {}

  // `begin` is at or behind the end of the one before.
  void add(Result<ToolCall> call, size_t begin, size_t end);
  // Bytes up to `end` are no content: the closing mark of a list of calls.
  void pass_over(size_t end) { covered_ = end; }
  ParsedMessage finish();

 private:
  std::string_view text_;
  ParsedMessage message_;
  std::vector<std::string> content_;
  std::vector<bool> is_call_;
  size_t covered_ = 0;
  size_t count_ = 0;
};

// A name or key without white space around it, and without the quotes that some models write.
std::string_view unquoted(std::string_view name);
// Whether a word can be the name of a tool: it has no white space, quotes, brackets or signs of a call in it.
bool may_be_name(std::string_view word);

// Name and arguments out of one JSON object, which may stand in {"type": "function", "function": {..}}; the failure
// says what would be right. The first of the keys is the one that is told.
Result<ToolCall> read_call(const Json& json, std::initializer_list<std::string_view> argument_keys);
Result<ToolCall> read_call(std::string_view json_text, std::initializer_list<std::string_view> argument_keys);

// Arguments that stand for themselves, as an object or as one written as a string.
Result<Json> read_arguments(Json arguments, std::string_view what);

// Where a JSON object or list that starts at `begin` ends, by its brackets outside of strings; npos where it does not.
size_t end_of_json(std::string_view text, size_t begin);

// A string as it is, all else as JSON: how dialects of tags write a value.
std::string value_as_text(const Json& value);

}  // namespace tandem::model
