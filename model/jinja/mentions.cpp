// Which names a body reads, for macros: what they do with arguments beyond their own depends on it.
#include <algorithm>

#include "model/jinja/ast.h"

namespace tandem::model::jinja {
namespace {

bool in_expression(const ExpressionPtr& expression, std::string_view name);

bool in_arguments(const CallArguments& arguments, std::string_view name) {
  const auto in = [&](const ExpressionPtr& part) { return in_expression(part, name); };
  return std::ranges::any_of(arguments.positional, in) ||
         std::ranges::any_of(arguments.named, [&](const auto& argument) { return in(argument.second); }) ||
         in(arguments.unpacked) || in(arguments.unpacked_named);
}

bool in_expression(const ExpressionPtr& expression, std::string_view name) {
  if (!expression) return false;
  if (expression->kind == Expression::kName && expression->name == name) return true;
  const auto in = [&](const ExpressionPtr& part) { return in_expression(part, name); };
  return std::ranges::any_of(expression->parts, in) || in_arguments(expression->arguments, name);
}

bool in_statement(const Statement& statement, std::string_view name) {
  const auto in = [&](const ExpressionPtr& part) { return in_expression(part, name); };
  return in(statement.expression) || in(statement.condition) || std::ranges::any_of(statement.values, in) ||
         std::ranges::any_of(statement.parameters, [&](const Parameter& p) { return in(p.otherwise); }) ||
         std::ranges::any_of(statement.branches,
                             [&](const auto& branch) { return in(branch.first) || mentions(branch.second, name); }) ||
         mentions(statement.body, name) || mentions(statement.other, name);
}

}  // namespace

bool mentions(const Body& body, std::string_view name) {
  return std::ranges::any_of(body, [&](const auto& statement) { return in_statement(*statement, name); });
}

}  // namespace tandem::model::jinja
