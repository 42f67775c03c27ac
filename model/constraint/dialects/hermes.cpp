// Hermes, Qwen2.5, Qwen3: an object, or with SmolLM2 a list of them, between tags.
#include "model/constraint/dialects/call_parts.h"
#include "model/tool_dialects/marks.h"

namespace tandem::model::constraint {

Result<Grammar> hermes_calls(const CallsAsked& asked) {
  CallGraph graph{.text = asked.text, .stops = {std::string(kToolCall), std::string(kToolCallEnd)}};
  if (!asked.calls) return Grammar{.calls = std::move(graph)};
  Grammar grammar = TRY(object_of_calls(asked, "arguments", CallLists::kYes));
  graph.first = add_part(graph, {.space = true});
  const uint32_t open = add_part(graph, {.text = std::string(kToolCall), .space = true});
  const uint32_t call = add_part(graph, {.node = grammar.root, .space = true});
  const uint32_t close = add_part(graph, {.text = std::string(kToolCallEnd), .space = true, .ends = true});
  graph.behind_text = open;
  graph.parts[graph.first].next = {open};
  graph.parts[open].next = {call};
  graph.parts[call].next = {close};
  if (!asked.one) graph.parts[close].next = {open};
  grammar.calls = std::move(graph);
  return grammar;
}

}  // namespace tandem::model::constraint
