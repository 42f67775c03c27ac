// Mistral: a list of objects behind one mark, or from version 11 on a mark before each call's name and arguments.
#include "model/constraint/dialects/call_parts.h"
#include "model/tool_dialects/marks.h"

namespace tandem::model::constraint {

Result<Grammar> mistral_calls(const CallsAsked& asked) {
  CallGraph graph{.text = asked.text, .stops = {std::string(kMistralCalls)}};
  if (!asked.calls) return Grammar{.calls = std::move(graph)};
  Grammar grammar = TRY(object_of_calls(asked, "arguments", CallLists::kOnly));
  graph.first = add_part(graph, {.space = true});
  const uint32_t open = add_part(graph, {.text = std::string(kMistralCalls), .space = true});
  const uint32_t list = add_part(graph, {.node = grammar.root, .space = true, .ends = true});
  graph.behind_text = open;
  graph.parts[graph.first].next = {open};
  graph.parts[open].next = {list};
  grammar.calls = std::move(graph);
  return grammar;
}

Result<Grammar> mistral_v11_calls(const CallsAsked& asked) {
  CallGraph graph{.text = asked.text, .stops = {std::string(kMistralCalls)}};
  if (!asked.calls) return Grammar{.calls = std::move(graph)};
  for (const auto& tool : asked.tools) TRY(check_name(ToolDialect::kMistralV11, tool.name));
  Grammar grammar = TRY(arguments_of_tools(asked.tools));
  graph.first = add_part(graph, {.space = true});
  const uint32_t open = add_part(graph, {.text = std::string(kMistralCalls)});
  graph.behind_text = open;
  graph.parts[graph.first].next = {open};
  for (size_t i = 0; i < asked.tools.size(); ++i) {
    if (grammar.nodes[grammar.entries[i]].depth == kNever) continue;
    const uint32_t arguments = add_part(graph, {.node = grammar.entries[i], .space = true, .ends = true});
    if (!asked.one) graph.parts[arguments].next = {open};
    const uint32_t mark = add_part(graph, {.text = std::string(kMistralArguments), .space = true, .next = {arguments}});
    const uint32_t name = add_part(graph, {.text = asked.tools[i].name, .next = {mark}});
    graph.parts[open].next.push_back(name);
  }
  grammar.calls = std::move(graph);
  return grammar;
}

}  // namespace tandem::model::constraint
