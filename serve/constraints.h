// Converts `response_format` and `tool_choice` of requests to constraints of a turn.
//
// The vocabulary is looked through once; grammars are kept while requests ask for the same. Thread safety: none; one
// thread prepares the requests of a model.
#pragma once

#include <map>
#include <memory>
#include <optional>
#include <string>

#include "model/config.h"
#include "model/constraint/constraint.h"
#include "rollout/engine/engine.h"
#include "serve/text_side.h"

namespace tandem::serve {

class Constraints {
 public:
  // Both outlive this.
  Constraints(const TextSide& side, const model::ModelConfig& config) : side_(side), config_(config) {}

  // `request` may have "response_format", "tool_choice", "tools" and "parallel_tool_calls"; `dialect` is that of a
  // chat. Nothing where it asks for no constraint.
  Result<std::optional<rollout::TurnConstraint>> of(const Json& request, std::optional<model::ToolDialect> dialect);

 private:
  static constexpr size_t kMaxGrammars = 64;

  const TextSide& side_;
  const model::ModelConfig& config_;
  std::shared_ptr<const model::constraint::Vocabulary> vocabulary_;
  std::map<std::string, std::shared_ptr<const model::constraint::Grammar>> grammars_;
};

}  // namespace tandem::serve
