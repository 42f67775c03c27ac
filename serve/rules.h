// Admin rules of a running server: requests of a key, a class, a model or a session are blocked, drained, or moved to a
// lower class.
//
// Pure; thread safety: none.
#pragma once

#include <array>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "serve/priority.h"

namespace tandem::serve {

enum class RuleOf : uint8_t { kKey, kClass, kModel, kSession };
inline constexpr std::array<std::string_view, 4> kRuleSubjects = {"key", "class", "model", "session"};
inline std::string_view name_of(RuleOf of) { return kRuleSubjects[static_cast<size_t>(of)]; }

// kBlock: new requests are refused, those that run end. kDrain: new ones are refused. kLower: they are of another
// class.
enum class RuleAction : uint8_t { kBlock, kDrain, kLower };
inline constexpr std::array<std::string_view, 3> kRuleActions = {"block", "drain", "lower"};
inline std::string_view name_of(RuleAction action) { return kRuleActions[static_cast<size_t>(action)]; }

struct Rule {
  RuleOf of = RuleOf::kKey;
  std::string name;  // of the key, class, model or session
  RuleAction action = RuleAction::kBlock;
  Priority to = Priority::kBatch;  // of kLower
  std::string reason, by;          // by: the name of the admin's key
};

// The subject of a rule.
struct RuleSubject {
  std::string_view key, session;
  std::span<const std::string> models;  // the names of the model that the request is for
  Priority priority = Priority::kInteractive;
};
bool concerns(const Rule& rule, const RuleSubject& subject);

class Rules {
 public:
  static constexpr size_t kMost = 1000;
  // In place of the one about the same, if there is one. False: there are too many.
  bool set(Rule rule);
  // False: there is none.
  bool remove(RuleOf of, std::string_view name);
  const std::vector<Rule>& all() const { return rules_; }

  // The one that refuses it, or null.
  const Rule* refusing(const RuleSubject& subject) const;
  // Its class; never above the one that it has.
  Priority priority_of(const RuleSubject& subject) const;

 private:
  std::vector<Rule> rules_;
};

}  // namespace tandem::serve
