#include "model/jinja/expression_parser.h"

#include "model/jinja/builtins.h"
#include "model/jinja/whole_number.h"

namespace tandem::model::jinja {

ExpressionPtr ExpressionParser::parse_tuple(bool with_condition) {
  const auto one = [&] { return with_condition ? parse_expression() : parse_or(); };
  auto first = one();
  if (!peek().is_operator(",")) return first;
  auto tuple = make_of(Expression::kTuple, "", std::move(first));
  while (skip_operator(",")) {
    const Token& token = peek();
    if (token.kind == Token::kVariableEnd || token.kind == Token::kBlockEnd || token.is_operator(")")) break;
    tuple->parts.push_back(one());
  }
  return tuple;
}

ExpressionPtr ExpressionParser::parse_expression() {
  const Deeper deeper(*this);
  auto value = parse_or();
  while (skip_name("if")) {
    auto condition = parse_or();
    ExpressionPtr otherwise = skip_name("else") ? parse_expression() : nullptr;
    value = make_of(Expression::kConditional, "", std::move(value), std::move(condition), std::move(otherwise));
  }
  return value;
}

ExpressionPtr ExpressionParser::parse_or() {
  auto left = parse_and();
  while (skip_name("or")) left = make_of(Expression::kOr, "", std::move(left), parse_and());
  return left;
}

ExpressionPtr ExpressionParser::parse_and() {
  auto left = parse_not();
  while (skip_name("and")) left = make_of(Expression::kAnd, "", std::move(left), parse_not());
  return left;
}

ExpressionPtr ExpressionParser::parse_not() {
  const Deeper deeper(*this);
  if (skip_name("not")) return make_of(Expression::kNot, "", parse_not());
  return parse_compare();
}

ExpressionPtr ExpressionParser::parse_compare() {
  auto left = parse_sum();
  ExpressionPtr compare;
  for (;;) {
    std::string found;
    for (const char* text : {"==", "!=", "<=", ">=", "<", ">"}) {
      if (found.empty() && skip_operator(text)) found = text;
    }
    if (found.empty() && skip_name("in")) found = "in";
    if (found.empty() && peek().is_name("not") && peek(1).is_name("in")) {
      at_ += 2;
      found = "not in";
    }
    if (found.empty()) return compare ? std::move(compare) : std::move(left);
    if (!compare) compare = make_of(Expression::kCompare, "", std::move(left));
    compare->operators.push_back(found);
    compare->parts.push_back(parse_sum());
  }
}

ExpressionPtr ExpressionParser::parse_binary(std::initializer_list<const char*> names,
                                             ExpressionPtr (ExpressionParser::*inner)()) {
  auto left = (this->*inner)();
  for (;;) {
    const auto found =
        std::find_if(names.begin(), names.end(), [&](const char* name) { return peek().is_operator(name); });
    if (found == names.end()) return left;
    ++at_;
    left = make_of(Expression::kBinary, *found, std::move(left), (this->*inner)());
  }
}

ExpressionPtr ExpressionParser::parse_concat() {
  auto left = parse_product();
  if (!peek().is_operator("~")) return left;
  auto concat = make_of(Expression::kConcat, "", std::move(left));
  while (skip_operator("~")) concat->parts.push_back(parse_product());
  return concat;
}

ExpressionPtr ExpressionParser::parse_unary(bool with_filters) {
  const Deeper deeper(*this);
  ExpressionPtr value;
  if (peek().is_operator("-") || peek().is_operator("+")) {
    const std::string sign = next().text;
    value = make_of(Expression::kUnary, sign, parse_unary(false));
  } else {
    value = parse_primary();
  }
  value = parse_postfix(std::move(value));
  return with_filters ? parse_filters(std::move(value)) : std::move(value);
}

ExpressionPtr ExpressionParser::constant(Value value) const {
  auto expression = make(Expression::kConstant);
  expression->constant = std::move(value);
  return expression;
}

ExpressionPtr ExpressionParser::parse_primary() {
  const Token token = peek();
  if (token.kind == Token::kName) {
    ++at_;
    if (token.text == "true" || token.text == "True") return constant(true);
    if (token.text == "false" || token.text == "False") return constant(false);
    if (token.text == "none" || token.text == "None") return constant(None{});
    if (token.text == "self") stop("'self' is not supported");
    return make(Expression::kName, token.text);
  }
  if (token.kind == Token::kText) {
    std::string text;
    while (peek().kind == Token::kText) text += next().text;
    return constant(std::move(text));
  }
  if (token.kind == Token::kInteger) {
    ++at_;
    const auto number = whole_of_literal(token.text);
    if (!number) stop(fmt::format("'{}' is no whole number", token.text));
    return constant(*number);
  }
  if (token.kind == Token::kFloat) {
    ++at_;
    return constant(std::strtod(token.text.c_str(), nullptr));
  }
  if (skip_operator("(")) {
    if (skip_operator(")")) return make(Expression::kTuple);
    auto inner = parse_tuple();
    expect_operator(")");
    return inner;
  }
  if (skip_operator("[")) {
    auto list = make(Expression::kList);
    while (!peek().is_operator("]")) {
      list->parts.push_back(parse_expression());
      if (!skip_operator(",")) break;
    }
    expect_operator("]");
    return list;
  }
  if (skip_operator("{")) {
    auto dict = make(Expression::kDict);
    while (!peek().is_operator("}")) {
      dict->parts.push_back(parse_expression());
      expect_operator(":");
      dict->parts.push_back(parse_expression());
      if (!skip_operator(",")) break;
    }
    expect_operator("}");
    return dict;
  }
  stop(fmt::format("unexpected '{}'", token.kind == Token::kEnd ? "end of template" : token.text));
}

ExpressionPtr ExpressionParser::parse_postfix(ExpressionPtr value) {
  for (;;) {
    if (skip_operator(".")) {
      if (peek().kind == Token::kInteger) {
        value = make_of(Expression::kItem, "", std::move(value), parse_primary());
      } else {
        value = make_of(Expression::kAttribute, expect_any_name(), std::move(value));
      }
    } else if (skip_operator("[")) {
      value = parse_subscript(std::move(value));
    } else if (peek().is_operator("(")) {
      value = make_of(Expression::kCall, "", std::move(value));
      value->arguments = parse_arguments();
    } else {
      return value;
    }
  }
}

ExpressionPtr ExpressionParser::parse_subscript(ExpressionPtr value) {
  ExpressionPtr bounds[3];
  int colons = 0;
  while (!peek().is_operator("]")) {
    if (skip_operator(":")) {
      if (++colons > 2) stop("a slice has three parts at most");
    } else if (bounds[colons]) {
      stop(fmt::format("unexpected '{}' in brackets", peek().text));
    } else {
      bounds[colons] = parse_expression();
    }
  }
  expect_operator("]");
  if (colons == 0) {
    if (!bounds[0]) stop("empty brackets");
    return make_of(Expression::kItem, "", std::move(value), std::move(bounds[0]));
  }
  return make_of(Expression::kSlice, "", std::move(value), std::move(bounds[0]), std::move(bounds[1]),
                 std::move(bounds[2]));
}

CallArguments ExpressionParser::parse_arguments() {
  CallArguments arguments;
  expect_operator("(");
  while (!peek().is_operator(")")) {
    if (arguments.unpacked_named) stop("an argument behind **");
    if (peek().is_operator("*") || peek().is_operator("**")) {
      auto& unpacked = next().text == "*" ? arguments.unpacked : arguments.unpacked_named;
      if (unpacked) stop("a second * in one call");
      unpacked = parse_expression();
    } else if (peek().kind == Token::kName && peek(1).is_operator("=")) {
      std::string name = next().text;
      ++at_;
      arguments.named.emplace_back(std::move(name), parse_expression());
    } else {
      if (!arguments.named.empty() || arguments.unpacked) stop("a positional argument behind a named one");
      arguments.positional.push_back(parse_expression());
    }
    if (!skip_operator(",")) break;
  }
  expect_operator(")");
  return arguments;
}

ExpressionPtr ExpressionParser::parse_one_filter(ExpressionPtr value) {
  const std::string name = expect_any_name();
  value = make_of(Expression::kFilter, name, std::move(value));
  if (peek().is_operator("(")) value->arguments = parse_arguments();
  return value;
}

ExpressionPtr ExpressionParser::parse_filters(ExpressionPtr value) {
  for (;;) {
    if (skip_operator("|")) {
      value = parse_one_filter(std::move(value));
    } else if (skip_name("is")) {
      value = parse_test(std::move(value));
    } else if (peek().is_operator("(")) {
      value = make_of(Expression::kCall, "", std::move(value));
      value->arguments = parse_arguments();
    } else {
      return value;
    }
  }
}

ExpressionPtr ExpressionParser::parse_test(ExpressionPtr value) {
  const bool negated = skip_name("not");
  const std::string name = expect_any_name();
  value = make_of(Expression::kTest, name, std::move(value));
  const Token& token = peek();
  const bool keyword = token.is_name("else") || token.is_name("or") || token.is_name("and") || token.is_name("is") ||
                       token.is_name("if") || token.is_name("in") || token.is_name("not");
  if (token.is_operator("(")) {
    value->arguments = parse_arguments();
  } else if (token.is_name("is")) {
    stop("You cannot chain multiple tests with is");
  } else if (!keyword && (token.kind == Token::kName || token.kind == Token::kText || token.kind == Token::kInteger ||
                          token.kind == Token::kFloat || token.is_operator("[") || token.is_operator("{"))) {
    value->arguments.positional.push_back(parse_postfix(parse_primary()));
  }
  return negated ? make_of(Expression::kNot, "", std::move(value)) : std::move(value);
}

}  // namespace tandem::model::jinja
