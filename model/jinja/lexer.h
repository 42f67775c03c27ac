// A template as tokens, with jinja2's white-space rules under trim_blocks and lstrip_blocks.
#pragma once

#include <string>
#include <string_view>
#include <vector>

namespace tandem::model::jinja {

struct Token {
  enum Kind {
    kData,
    kVariableBegin,
    kVariableEnd,
    kBlockBegin,
    kBlockEnd,
    kName,
    kText,
    kInteger,
    kFloat,
    kOperator,
    kEnd
  };
  Kind kind = kEnd;
  std::string text;  // of kText: with its escapes resolved
  int line = 1;

  bool is(Kind wanted, std::string_view value) const { return kind == wanted && text == value; }
  bool is_operator(std::string_view value) const { return is(kOperator, value); }
  bool is_name(std::string_view value) const { return is(kName, value); }
};

// Throws TemplateError that names the line.
std::vector<Token> tokenize(std::string_view source);

}  // namespace tandem::model::jinja
