#include "serve/rules.h"

#include <algorithm>

namespace tandem::serve {

bool concerns(const Rule& rule, const RuleSubject& subject) {
  switch (rule.of) {
    case RuleOf::kKey:
      return rule.name == subject.key;
    case RuleOf::kClass:
      return rule.name == name_of(subject.priority);
    case RuleOf::kModel:
      return std::ranges::find(subject.models, rule.name) != subject.models.end();
    case RuleOf::kSession:
      return rule.name == subject.session;
  }
  return false;
}

bool Rules::set(Rule rule) {
  const auto same =
      std::ranges::find_if(rules_, [&](const Rule& other) { return other.of == rule.of && other.name == rule.name; });
  if (same == rules_.end() && rules_.size() >= kMost) return false;
  if (same == rules_.end())
    rules_.push_back(std::move(rule));
  else
    *same = std::move(rule);
  return true;
}

bool Rules::remove(RuleOf of, std::string_view name) {
  return std::erase_if(rules_, [&](const Rule& rule) { return rule.of == of && rule.name == name; }) > 0;
}

const Rule* Rules::refusing(const RuleSubject& subject) const {
  const auto found = std::ranges::find_if(
      rules_, [&](const Rule& rule) { return rule.action != RuleAction::kLower && concerns(rule, subject); });
  return found == rules_.end() ? nullptr : &*found;
}

Priority Rules::priority_of(const RuleSubject& subject) const {
  Priority priority = subject.priority;
  for (const Rule& rule : rules_) {
    if (rule.action == RuleAction::kLower && concerns(rule, subject)) priority = std::max(priority, rule.to);
  }
  return priority;
}

}  // namespace tandem::serve
