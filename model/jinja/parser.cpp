// A template into its tree: statements.
#include <fmt/format.h>

#include <algorithm>
#include <initializer_list>

#include "model/jinja/ast.h"
#include "model/jinja/expression_parser.h"

namespace tandem::model::jinja {
namespace {

class Parser : ExpressionParser {
 public:
  explicit Parser(std::string_view source) : ExpressionParser(tokenize(source)) {}

  Body run() {
    Body body = parse_body({});
    if (peek().kind != Token::kEnd) stop(fmt::format("unexpected '{}'", peek().text));
    return body;
  }

 private:
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
        next();
        statement->expression = parse_tuple();
        if (peek().kind != Token::kVariableEnd) stop(fmt::format("expected '}}}}', found '{}'", peek().text));
        next();
        body.push_back(std::move(statement));
      } else {
        next();  // {%
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
    if (name == "block") return parse_block();
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
    if (name->name == "loop" && within_for_ > 0 && !(attributes && peek().is_operator(".")))
      stop("Can't assign to special loop variable in for-loop target");
    if (attributes && skip_operator(".")) return make_of(Expression::kAttribute, expect_any_name(), std::move(name));
    return name;
  }

  std::unique_ptr<Statement> parse_for() {
    auto statement = make_statement(Statement::kFor);
    ++within_for_;
    statement->targets.push_back(parse_target(false));
    expect_name("in");
    statement->expression = parse_tuple(false);
    if (skip_name("if")) statement->condition = parse_expression();
    statement->recursive = skip_name("recursive");
    expect_block_end();
    ++loops_;
    statement->body = parse_body({"else", "endfor"});
    --loops_;
    if (end_ == "else") {
      expect_block_end();
      statement->other = parse_body({"endfor"});
    }
    --within_for_;
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
      if (std::ranges::find(statement.parameters, parameter.name, &Parameter::name) != statement.parameters.end())
        stop(fmt::format("duplicate argument '{}'", parameter.name));
      if (skip_operator("=")) {
        parameter.otherwise = parse_expression();
      } else if (!statement.parameters.empty() && statement.parameters.back().otherwise) {
        stop("non-default argument follows default argument");
      }
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

  // Nothing extends a template here, so a block stands for itself.
  std::unique_ptr<Statement> parse_block() {
    auto statement = make_statement(Statement::kBlock);
    statement->text = expect_any_name();
    if (std::ranges::find(blocks_, statement->text) != blocks_.end())
      stop(fmt::format("block '{}' defined twice", statement->text));
    blocks_.push_back(statement->text);
    statement->scoped = skip_name("scoped");
    if (peek().is_name("required")) stop(fmt::format("Required block '{}' not found", statement->text));
    expect_block_end();
    const int outside = std::exchange(loops_, 0);
    statement->body = parse_body({"endblock"});
    loops_ = outside;
    if (peek().kind == Token::kName) expect_name(statement->text);
    expect_block_end();
    return statement;
  }

  std::vector<std::string> blocks_;  // names of those so far
  int loops_ = 0;
  int within_for_ = 0;  // loops around, those around a macro too
  std::string end_;     // the name of the tag that ended the last body
};

}  // namespace

Body parse(std::string_view source) { return Parser(source).run(); }

}  // namespace tandem::model::jinja
