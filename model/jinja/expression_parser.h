// Expressions of the template language, as trees: what stands between the marks of a tag. Recursive descent in jinja2's
// order of precedence. Throws TemplateError with the line.
//
// Thread safety: none; one owner.
#pragma once

#include <fmt/format.h>

#include <algorithm>
#include <initializer_list>
#include <string>
#include <vector>

#include "model/jinja/ast.h"
#include "model/jinja/lexer.h"

namespace tandem::model::jinja {

// The base of the statement parser: a position in the tokens, and the parser of expressions.
class ExpressionParser {
 protected:
  explicit ExpressionParser(std::vector<Token> tokens) : tokens_(std::move(tokens)) {}

  // Counts nesting while it lives.
  class Deeper {
   public:
    explicit Deeper(ExpressionParser& parser) : parser_(parser) {
      if (++parser_.depth_ > kDeepest) parser_.stop("nested too deep");
    }
    ~Deeper() { --parser_.depth_; }

   private:
    ExpressionParser& parser_;
  };

  [[noreturn]] void stop(const std::string& message) const {
    throw TemplateError(fmt::format("line {}: {}", peek().line, message));
  }
  const Token& peek(size_t ahead = 0) const { return tokens_[std::min(at_ + ahead, tokens_.size() - 1)]; }
  Token next() { return tokens_[std::min(at_++, tokens_.size() - 1)]; }
  bool skip_operator(std::string_view text) {
    if (!peek().is_operator(text)) return false;
    ++at_;
    return true;
  }
  bool skip_name(std::string_view text) {
    if (!peek().is_name(text)) return false;
    ++at_;
    return true;
  }
  void expect_operator(std::string_view text) {
    if (!skip_operator(text)) stop(fmt::format("expected '{}', found '{}'", text, peek().text));
  }
  void expect_name(std::string_view text) {
    if (!skip_name(text)) stop(fmt::format("expected '{}', found '{}'", text, peek().text));
  }
  std::string expect_any_name() {
    if (peek().kind != Token::kName) stop(fmt::format("expected a name, found '{}'", peek().text));
    return next().text;
  }
  void expect_block_end() {
    if (peek().kind != Token::kBlockEnd) stop(fmt::format("expected the end of the tag, found '{}'", peek().text));
    ++at_;
  }

  ExpressionPtr make(Expression::Kind kind, std::string name = {}) const {
    auto expression = std::make_unique<Expression>();
    expression->kind = kind;
    expression->line = peek().line;
    expression->name = std::move(name);
    return expression;
  }
  template <typename... Parts>
  ExpressionPtr make_of(Expression::Kind kind, std::string name, Parts... parts) {
    if (++links_ > kMostLinks) stop("an expression of too many parts");
    auto expression = make(kind, std::move(name));
    (expression->parts.push_back(std::move(parts)), ...);
    return expression;
  }

  // `a, b` is a tuple; without a condition, an `if` behind it belongs to the tag and not to the expression.
  ExpressionPtr parse_tuple(bool with_condition = true);
  ExpressionPtr parse_expression();
  CallArguments parse_arguments();  // with their parentheses
  // `value | name(arguments) | ...`, and one of them whose bar is taken.
  ExpressionPtr parse_filters(ExpressionPtr value);
  ExpressionPtr parse_one_filter(ExpressionPtr value);

  int links_ = 0;  // of the tag so far

 private:
  static constexpr int kDeepest = 150;    // nesting of expressions and blocks
  static constexpr int kMostLinks = 600;  // operators and the like in one tag: they may nest to the left without end

  ExpressionPtr parse_or();
  ExpressionPtr parse_and();
  ExpressionPtr parse_not();
  ExpressionPtr parse_compare();
  ExpressionPtr parse_binary(std::initializer_list<const char*> names, ExpressionPtr (ExpressionParser::*inner)());
  ExpressionPtr parse_sum() { return parse_binary({"+", "-"}, &ExpressionParser::parse_concat); }
  ExpressionPtr parse_concat();
  ExpressionPtr parse_product() { return parse_binary({"*", "/", "//", "%"}, &ExpressionParser::parse_power); }
  ExpressionPtr parse_power() { return parse_binary({"**"}, &ExpressionParser::parse_filtered_unary); }
  ExpressionPtr parse_filtered_unary() { return parse_unary(true); }

  ExpressionPtr parse_unary(bool with_filters);
  ExpressionPtr constant(Value value) const;
  ExpressionPtr parse_primary();
  ExpressionPtr parse_postfix(ExpressionPtr value);
  ExpressionPtr parse_subscript(ExpressionPtr value);
  ExpressionPtr parse_test(ExpressionPtr value);

  std::vector<Token> tokens_;
  size_t at_ = 0;
  int depth_ = 0;
};

}  // namespace tandem::model::jinja
