#include <fmt/format.h>

#include <algorithm>
#include <initializer_list>

#include "model/jinja/ast.h"
#include "model/jinja/builtins.h"
#include "model/jinja/lexer.h"

namespace tandem::model::jinja {
namespace {

constexpr int kDeepest = 150;    // nesting of expressions and blocks
constexpr int kMostLinks = 600;  // operators and the like in one tag: they may nest to the left without end

class Parser {
 public:
  explicit Parser(std::string_view source) : tokens_(tokenize(source)) {}

  Body run() {
    Body body = parse_body({});
    if (peek().kind != Token::kEnd) stop(fmt::format("unexpected '{}'", peek().text));
    return body;
  }

 private:
  // Counts nesting while it lives.
  class Deeper {
   public:
    explicit Deeper(Parser& parser) : parser_(parser) {
      if (++parser_.depth_ > kDeepest) parser_.stop("nested too deep");
    }
    ~Deeper() { --parser_.depth_; }

   private:
    Parser& parser_;
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
  std::unique_ptr<Statement> make_statement(Statement::Kind kind) const {
    auto statement = std::make_unique<Statement>();
    statement->kind = kind;
    statement->line = peek().line;
    return statement;
  }

  // Statements up to a tag whose name is among `ends`; that tag's name is taken, the rest of it is not.
  Body parse_body(std::initializer_list<std::string_view> ends) {
    const Deeper deeper(*this);
    Body body;
    for (;;) {
      const Token& token = peek();
      links_ = 0;
      if (token.kind == Token::kEnd) {
        if (ends.size() > 0) stop(fmt::format("the template ends before '{}'", *(ends.end() - 1)));
        return body;
      }
      if (token.kind == Token::kData) {
        auto statement = make_statement(Statement::kData);
        statement->text = next().text;
        body.push_back(std::move(statement));
      } else if (token.kind == Token::kVariableBegin) {
        auto statement = make_statement(Statement::kOutput);
        ++at_;
        statement->expression = parse_tuple();
        if (peek().kind != Token::kVariableEnd) stop(fmt::format("expected '}}}}', found '{}'", peek().text));
        ++at_;
        body.push_back(std::move(statement));
      } else {
        ++at_;  // {%
        if (peek().kind == Token::kName && std::find(ends.begin(), ends.end(), peek().text) != ends.end()) {
          end_ = next().text;
          return body;
        }
        body.push_back(parse_statement());
      }
    }
  }

  std::unique_ptr<Statement> parse_statement() {
    const std::string name = expect_any_name();
    if (name == "if") return parse_if();
    if (name == "for") return parse_for();
    if (name == "set") return parse_set();
    if (name == "macro") return parse_macro();
    if (name == "call") return parse_call_block();
    if (name == "filter") return parse_filter_block();
    if (name == "with") return parse_with();
    if (name == "generation") return parse_generation();
    if (name == "break" || name == "continue") {
      auto statement = make_statement(name == "break" ? Statement::kBreak : Statement::kContinue);
      if (loops_ == 0) stop(fmt::format("'{}' outside of a loop", name));
      expect_block_end();
      return statement;
    }
    stop(fmt::format("tag '{}' is not supported", name));
  }

  std::unique_ptr<Statement> parse_if() {
    auto statement = make_statement(Statement::kIf);
    for (;;) {
      ExpressionPtr condition = parse_tuple(false);
      expect_block_end();
      Body body = parse_body({"elif", "else", "endif"});
      statement->branches.emplace_back(std::move(condition), std::move(body));
      if (end_ == "elif") continue;
      if (end_ == "else") {
        expect_block_end();
        statement->branches.emplace_back(nullptr, parse_body({"endif"}));
      }
      expect_block_end();
      return statement;
    }
  }

  // One target: a name, an attribute of a name (set only), or several of them.
  ExpressionPtr parse_target(bool attributes) {
    auto first = parse_one_target(attributes);
    if (!peek().is_operator(",")) return first;
    auto tuple = make_of(Expression::kTuple, "", std::move(first));
    while (skip_operator(",")) {
      if (peek().kind != Token::kName && !peek().is_operator("(")) break;
      tuple->parts.push_back(parse_one_target(attributes));
    }
    return tuple;
  }
  ExpressionPtr parse_one_target(bool attributes) {
    const Deeper deeper(*this);
    if (skip_operator("(")) {
      auto inner = parse_target(attributes);
      expect_operator(")");
      return inner;
    }
    auto name = make(Expression::kName, expect_any_name());
    if (attributes && skip_operator(".")) return make_of(Expression::kAttribute, expect_any_name(), std::move(name));
    return name;
  }

  std::unique_ptr<Statement> parse_for() {
    auto statement = make_statement(Statement::kFor);
    statement->targets.push_back(parse_target(false));
    expect_name("in");
    statement->expression = parse_tuple(false);
    if (skip_name("if")) statement->condition = parse_expression();
    if (peek().is_name("recursive")) stop("recursive loops are not supported");
    expect_block_end();
    ++loops_;
    statement->body = parse_body({"else", "endfor"});
    --loops_;
    if (end_ == "else") {
      expect_block_end();
      statement->other = parse_body({"endfor"});
    }
    expect_block_end();
    return statement;
  }

  std::unique_ptr<Statement> parse_set() {
    auto statement = make_statement(Statement::kSet);
    statement->targets.push_back(parse_target(true));
    if (skip_operator("=")) {
      statement->expression = parse_tuple();
      expect_block_end();
      return statement;
    }
    statement->kind = Statement::kSetBlock;
    statement->expression = parse_filters(make(Expression::kName, ""));
    expect_block_end();
    statement->body = parse_body({"endset"});
    expect_block_end();
    return statement;
  }

  void parse_parameters(Statement& statement) {
    expect_operator("(");
    while (!peek().is_operator(")")) {
      Parameter parameter{expect_any_name(), nullptr};
      if (skip_operator("=")) parameter.otherwise = parse_expression();
      statement.parameters.push_back(std::move(parameter));
      if (!skip_operator(",")) break;
    }
    expect_operator(")");
  }

  // Loops do not reach into the body of a macro.
  Body parse_separate_body(std::string_view end) {
    const int outside = std::exchange(loops_, 0);
    Body body = parse_body({end});
    loops_ = outside;
    expect_block_end();
    return body;
  }

  std::unique_ptr<Statement> parse_macro() {
    auto statement = make_statement(Statement::kMacro);
    statement->text = expect_any_name();
    parse_parameters(*statement);
    expect_block_end();
    statement->body = parse_separate_body("endmacro");
    return statement;
  }

  std::unique_ptr<Statement> parse_call_block() {
    auto statement = make_statement(Statement::kCallBlock);
    if (peek().is_operator("(")) parse_parameters(*statement);
    statement->expression = parse_expression();
    if (statement->expression->kind != Expression::kCall) stop("'call' needs a call");
    expect_block_end();
    statement->body = parse_separate_body("endcall");
    return statement;
  }

  std::unique_ptr<Statement> parse_filter_block() {
    auto statement = make_statement(Statement::kFilterBlock);
    auto filter = parse_one_filter(make(Expression::kName, ""));
    statement->expression = parse_filters(std::move(filter));
    expect_block_end();
    statement->body = parse_separate_body("endfilter");
    return statement;
  }

  std::unique_ptr<Statement> parse_with() {
    auto statement = make_statement(Statement::kWith);
    while (peek().kind == Token::kName) {
      statement->targets.push_back(make(Expression::kName, next().text));
      expect_operator("=");
      statement->values.push_back(parse_expression());
      if (!skip_operator(",")) break;
    }
    expect_block_end();
    statement->body = parse_body({"endwith"});
    expect_block_end();
    return statement;
  }

  std::unique_ptr<Statement> parse_generation() {
    auto statement = make_statement(Statement::kGeneration);
    expect_block_end();
    statement->body = parse_separate_body("endgeneration");
    return statement;
  }

  ExpressionPtr parse_tuple(bool with_condition = true) {
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

  ExpressionPtr parse_expression() {
    const Deeper deeper(*this);
    auto value = parse_or();
    while (skip_name("if")) {
      auto condition = parse_or();
      ExpressionPtr otherwise = skip_name("else") ? parse_expression() : nullptr;
      value = make_of(Expression::kConditional, "", std::move(value), std::move(condition), std::move(otherwise));
    }
    return value;
  }
  ExpressionPtr parse_or() {
    auto left = parse_and();
    while (skip_name("or")) left = make_of(Expression::kOr, "", std::move(left), parse_and());
    return left;
  }
  ExpressionPtr parse_and() {
    auto left = parse_not();
    while (skip_name("and")) left = make_of(Expression::kAnd, "", std::move(left), parse_not());
    return left;
  }
  ExpressionPtr parse_not() {
    const Deeper deeper(*this);
    if (skip_name("not")) return make_of(Expression::kNot, "", parse_not());
    return parse_compare();
  }
  ExpressionPtr parse_compare() {
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
  ExpressionPtr parse_binary(std::initializer_list<const char*> names, ExpressionPtr (Parser::*inner)()) {
    auto left = (this->*inner)();
    for (;;) {
      const auto found =
          std::find_if(names.begin(), names.end(), [&](const char* name) { return peek().is_operator(name); });
      if (found == names.end()) return left;
      ++at_;
      left = make_of(Expression::kBinary, *found, std::move(left), (this->*inner)());
    }
  }
  ExpressionPtr parse_sum() { return parse_binary({"+", "-"}, &Parser::parse_concat); }
  ExpressionPtr parse_concat() {
    auto left = parse_product();
    if (!peek().is_operator("~")) return left;
    auto concat = make_of(Expression::kConcat, "", std::move(left));
    while (skip_operator("~")) concat->parts.push_back(parse_product());
    return concat;
  }
  ExpressionPtr parse_product() { return parse_binary({"*", "/", "//", "%"}, &Parser::parse_power); }
  ExpressionPtr parse_power() { return parse_binary({"**"}, &Parser::parse_filtered_unary); }
  ExpressionPtr parse_filtered_unary() { return parse_unary(true); }

  ExpressionPtr parse_unary(bool with_filters) {
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

  ExpressionPtr constant(Value value) const {
    auto expression = make(Expression::kConstant);
    expression->constant = std::move(value);
    return expression;
  }

  ExpressionPtr parse_primary() {
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
      if (token.text.size() > 18) stop("a whole number of more than 18 digits");
      return constant(static_cast<int64_t>(std::stoll(token.text)));
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

  ExpressionPtr parse_postfix(ExpressionPtr value) {
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

  ExpressionPtr parse_subscript(ExpressionPtr value) {
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

  CallArguments parse_arguments() {
    CallArguments arguments;
    expect_operator("(");
    while (!peek().is_operator(")")) {
      if (peek().is_operator("*")) stop("unpacked arguments are not supported");
      if (peek().kind == Token::kName && peek(1).is_operator("=")) {
        std::string name = next().text;
        ++at_;
        arguments.named.emplace_back(std::move(name), parse_expression());
      } else {
        if (!arguments.named.empty()) stop("a positional argument behind a named one");
        arguments.positional.push_back(parse_expression());
      }
      if (!skip_operator(",")) break;
    }
    expect_operator(")");
    return arguments;
  }

  ExpressionPtr parse_one_filter(ExpressionPtr value) {
    const std::string name = expect_any_name();
    if (!is_filter(name)) stop(fmt::format("filter '{}' is not supported", name));
    value = make_of(Expression::kFilter, name, std::move(value));
    if (peek().is_operator("(")) value->arguments = parse_arguments();
    return value;
  }

  ExpressionPtr parse_filters(ExpressionPtr value) {
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

  ExpressionPtr parse_test(ExpressionPtr value) {
    const bool negated = skip_name("not");
    const std::string name = expect_any_name();
    if (!is_test(name)) stop(fmt::format("test '{}' is not supported", name));
    value = make_of(Expression::kTest, name, std::move(value));
    const Token& token = peek();
    const bool keyword = token.is_name("else") || token.is_name("or") || token.is_name("and") || token.is_name("is") ||
                         token.is_name("if") || token.is_name("in") || token.is_name("not");
    if (token.is_operator("(")) {
      value->arguments = parse_arguments();
    } else if (!keyword && (token.kind == Token::kName || token.kind == Token::kText || token.kind == Token::kInteger ||
                            token.kind == Token::kFloat || token.is_operator("[") || token.is_operator("{"))) {
      value->arguments.positional.push_back(parse_postfix(parse_primary()));
    }
    return negated ? make_of(Expression::kNot, "", std::move(value)) : std::move(value);
  }

  std::vector<Token> tokens_;
  size_t at_ = 0;
  int depth_ = 0;
  int loops_ = 0;
  int links_ = 0;
  std::string end_;  // the name of the tag that ended the last body
};

}  // namespace

Body parse(std::string_view source) { return Parser(source).run(); }

}  // namespace tandem::model::jinja
