// GLM-4.5: a name, and a key and a value between tags for each argument.
#include "model/constraint/dialects/text_values.h"
#include "model/tool_dialects/marks.h"

namespace tandem::model::constraint {

Result<Grammar> glm4_calls(const CallsAsked& asked) {
  constexpr auto kDialect = ToolDialect::kGlm4;
  CallGraph graph{.text = asked.text, .stops = {std::string(kToolCall)}};
  if (!asked.calls) return Grammar{.calls = std::move(graph)};
  for (const auto& tool : asked.tools) TRY(check_name(kDialect, tool.name));
  Grammar grammar = TRY(arguments_of_tools(asked.tools));
  set_guard(grammar, '/');
  const auto rules = TRY(text_arguments(grammar, {kDialect, {"</arg_value>", "<arg_key>", kToolCall}}, asked.tools));

  graph.first = add_part(graph, {.space = true});
  const uint32_t open = add_part(graph, {.text = std::string(kToolCall)});
  graph.parts[graph.first].next = {open};
  graph.behind_text = open;
  for (size_t i = 0; i < asked.tools.size(); ++i) {
    for (const uint32_t rule : rules[i]) {
      const uint32_t name =
          add_part(graph, {.text = asked.tools[i].name, .space = true, .turn = Part::kOpens, .object = rule});
      const uint32_t key = add_part(graph, {.text = "<arg_key>", .turn = Part::kIfMore, .object = rule});
      const uint32_t behind = add_part(graph, {.text = "</arg_value>", .space = true});
      const uint32_t close = add_part(
          graph,
          {.text = std::string(kToolCallEnd), .space = true, .ends = true, .turn = Part::kIfEnough, .object = rule});
      graph.parts[open].next.push_back(name);
      graph.parts[name].next = graph.parts[behind].next = {key, close};
      if (!asked.one) graph.parts[close].next = {open};
      const auto& properties = grammar.objects[rule].properties;
      for (uint32_t p = 0; p < properties.size(); ++p) {
        const uint32_t value = add_part(graph, {.node = properties[p].node, .next = {behind}});
        const uint32_t before = add_part(graph, {.text = "<arg_value>", .next = {value}});
        const uint32_t key_end = add_part(graph, {.text = "</arg_key>", .space = true, .next = {before}});
        const uint32_t takes = add_part(
            graph,
            {.text = properties[p].name, .next = {key_end}, .turn = Part::kTakes, .object = rule, .property = p});
        graph.parts[key].next.push_back(takes);
      }
    }
  }
  grammar.calls = std::move(graph);
  return grammar;
}

}  // namespace tandem::model::constraint
