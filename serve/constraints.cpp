#include "serve/constraints.h"

#include <fmt/format.h>

namespace tandem::serve {

Result<std::optional<rollout::TurnConstraint>> Constraints::of(const Json& request,
                                                               std::optional<model::ToolDialect> dialect) {
  const bool format = request.contains("response_format"), choice = request.contains("tool_choice");
  if (!format && !choice) return std::optional<rollout::TurnConstraint>();
  if (format && choice)
    return fail(Status::invalid("\"response_format\" and \"tool_choice\" constrain the same text: give one of them"));
  if (choice && !dialect) return fail(Status::invalid("\"tool_choice\" goes with \"messages\""));
  if (!side_.tokenizer) return fail(Status::invalid("a constraint needs a tokenizer.json in the model directory"));
  if (request.contains("stop"))
    return fail(Status::invalid("\"stop\" would cut a constrained text short").hint("leave one of them out"));
  const bool one = request.value("parallel_tool_calls", Json()) == Json(false);
  const auto calls = one ? model::constraint::Calls::kOne : model::constraint::Calls::kAny;
  const std::string key =
      format ? dump_json(request["response_format"])
             : fmt::format("{} {} {} {}", one, model::name_of(*dialect), dump_json(request["tool_choice"]),
                           dump_json(request.value("tools", Json())));
  auto found = grammars_.find(key);
  if (found == grammars_.end()) {
    auto grammar = format ? TRY(model::constraint::response_grammar(request["response_format"]))
                          : TRY(model::constraint::tool_grammar(*dialect, request.value("tools", Json()),
                                                                request["tool_choice"], calls));
    if (!vocabulary_) vocabulary_ = TRY(model::constraint::Vocabulary::create(*side_.tokenizer, config_.eos_tokens));
    if (grammar) model::constraint::prepare(grammar, vocabulary_);
    if (grammars_.size() >= kMaxGrammars) grammars_.clear();
    found = grammars_.emplace(key, std::move(grammar)).first;
  }
  if (!found->second) return std::optional<rollout::TurnConstraint>();
  return rollout::TurnConstraint{found->second, vocabulary_};
}

}  // namespace tandem::serve
