// Qwen3-Coder: <function=NAME> and a <parameter=KEY> for each argument, between tags.
#include "model/constraint/dialects/text_values.h"
#include "model/tool_dialects/marks.h"

namespace tandem::model::constraint {

Result<Grammar> qwen3_coder_calls(const CallsAsked& asked) {
  constexpr auto kDialect = ToolDialect::kQwen3Coder;
  CallGraph graph{.text = asked.text, .stops = {std::string(kToolCall), std::string(kCoderFunction)}};
  if (!asked.calls) return Grammar{.calls = std::move(graph)};
  for (const auto& tool : asked.tools) TRY(check_name(kDialect, tool.name));
  Grammar grammar = TRY(arguments_of_tools(asked.tools));
  set_guard(grammar, '/');
  // What the parser takes for the end of a value, or for a sign that the end is missing.
  const auto rules =
      TRY(text_arguments(grammar, {kDialect, {"</parameter>", "<parameter=", kToolCallEnd}}, asked.tools));

  graph.first = add_part(graph, {.space = true});
  const uint32_t open = add_part(graph, {.text = std::string(kToolCall), .space = true});
  const uint32_t close = add_part(graph, {.text = std::string(kToolCallEnd), .space = true, .ends = true});
  graph.parts[graph.first].next = {open};
  graph.behind_text = open;
  if (!asked.one) graph.parts[close].next = {open};
  for (size_t i = 0; i < asked.tools.size(); ++i) {
    for (const uint32_t rule : rules[i]) {
      const uint32_t function = add_part(
          graph,
          {.text = "<function=" + asked.tools[i].name + ">", .space = true, .turn = Part::kOpens, .object = rule});
      const uint32_t parameter = add_part(graph, {.text = "<parameter=", .turn = Part::kIfMore, .object = rule});
      const uint32_t behind = add_part(graph, {.text = "\n</parameter>", .space = true});
      const uint32_t end = add_part(
          graph, {.text = "</function>", .space = true, .next = {close}, .turn = Part::kIfEnough, .object = rule});
      graph.parts[open].next.push_back(function);
      graph.parts[function].next = graph.parts[behind].next = {parameter, end};
      const auto& properties = grammar.objects[rule].properties;
      for (uint32_t p = 0; p < properties.size(); ++p) {
        const uint32_t value = add_part(graph, {.node = properties[p].node, .next = {behind}});
        const uint32_t takes = add_part(
            graph,
            {.text = properties[p].name + ">\n", .next = {value}, .turn = Part::kTakes, .object = rule, .property = p});
        graph.parts[parameter].next.push_back(takes);
      }
    }
  }
  grammar.calls = std::move(graph);
  return grammar;
}

}  // namespace tandem::model::constraint
