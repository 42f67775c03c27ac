// Llama 3: objects as the whole message, with ; between them.
#include "model/constraint/dialects/call_parts.h"
#include "model/tool_dialects/marks.h"

namespace tandem::model::constraint {

Result<Grammar> llama3_calls(const CallsAsked& asked) {
  CallGraph graph{.text = asked.text, .stops = {std::string(kPythonTag)}, .starts_with_call = true};
  if (!asked.calls) return Grammar{.calls = std::move(graph)};
  Grammar grammar = TRY(object_of_calls(asked, "parameters", CallLists::kNo));
  graph.first = add_part(graph, {.space = true});
  const uint32_t call = add_part(graph, {.node = grammar.root, .space = true, .ends = true});
  const uint32_t separator = add_part(graph, {.text = ";", .space = true});
  graph.parts[graph.first].next = {call};
  if (!asked.one) graph.parts[call].next = {separator};
  graph.parts[separator].next = {call};
  grammar.calls = std::move(graph);
  return grammar;
}

}  // namespace tandem::model::constraint
