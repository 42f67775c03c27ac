#include "model/constraint/dialects/call_parts.h"

#include <fmt/format.h>

#include <functional>

#include "model/constraint/decimal.h"
#include "model/constraint/schema_compiler.h"

namespace tandem::model::constraint {

namespace {

Json object_schema(const OfferedTool& tool) { return {{"type", "object"}, {"allOf", Json::array({tool.parameters})}}; }

// What is wrong in a tool's parameters, said in terms of the tools and not of the schema around them.
Status in_terms_of_tools(const Status& status, const std::vector<OfferedTool>& tools,
                         const std::function<std::string(size_t)>& place) {
  std::string message = status.message();
  for (size_t i = tools.size(); i-- > 0;) {
    const std::string before = fmt::format("the schema at #{}", place(i));
    if (message.starts_with(before))
      message.replace(0, before.size(), fmt::format("the parameters of the tool \"{}\" at #", tools[i].name));
  }
  Status out(status.code(), std::move(message));
  return status.hint().empty() ? out : std::move(out).hint(status.hint());
}

// The node of the number of a call in its message.
Result<uint32_t> add_call_number(Grammar& grammar) {
  NumberRules rules{.integer = true};
  rules.at_least(TRY(Bound::of(0, false)));
  rules.at_most(TRY(Bound::of(9999, false)));
  grammar.automata.push_back(std::make_shared<const Dfa>(TRY(compile_number(rules))));
  grammar.nodes.push_back({.numbers = {static_cast<uint32_t>(grammar.automata.size() - 1)}, .depth = 0});
  return static_cast<uint32_t>(grammar.nodes.size() - 1);
}

}  // namespace

Result<Grammar> object_of_calls(const CallsAsked& asked, const std::string& arguments_key, CallLists lists) {
  const auto place = [&](size_t i) {
    return fmt::format("/$defs/call/anyOf/{}/properties/{}/allOf/0", i, arguments_key);
  };
  Json calls = Json::array();
  std::vector<Json::json_pointer> roots;
  for (size_t i = 0; i < asked.tools.size(); ++i) {
    calls.push_back(
        {{"type", "object"},
         {"properties", {{"name", {{"const", asked.tools[i].name}}}, {arguments_key, object_schema(asked.tools[i])}}},
         {"required", {"name", arguments_key}},
         {"additionalProperties", false}});
    roots.emplace_back(place(i));
  }
  const Json call = {{"$ref", "#/$defs/call"}};
  Json schema = {{"$defs", {{"call", {{"anyOf", std::move(calls)}}}}}, {"anyOf", Json::array()}};
  if (lists != CallLists::kOnly) schema["anyOf"].push_back(call);
  if (lists != CallLists::kNo) {
    Json list = {{"type", "array"}, {"items", call}, {"minItems", 1}};
    if (asked.one) list["maxItems"] = 1;
    schema["anyOf"].push_back(std::move(list));
  }
  auto grammar = compile_schema(schema, roots);
  if (!grammar) return fail(in_terms_of_tools(grammar.error(), asked.tools, place));
  return grammar;
}

Result<Grammar> arguments_of_tools(const std::vector<OfferedTool>& tools) {
  const auto place = [](size_t i) { return fmt::format("/$defs/arguments/{}/allOf/0", i); };
  Json arguments = Json::array();
  std::vector<Json::json_pointer> roots, entries;
  for (size_t i = 0; i < tools.size(); ++i) {
    arguments.push_back(object_schema(tools[i]));
    roots.emplace_back(place(i));
    entries.emplace_back(fmt::format("/$defs/arguments/{}", i));
  }
  const Json schema = {{"$defs", {{"arguments", std::move(arguments)}}}, {"type", "null"}};
  auto grammar = compile_schema(schema, roots, entries);
  if (!grammar) return fail(in_terms_of_tools(grammar.error(), tools, place));
  for (const uint32_t node : grammar->entries)
    if (grammar->nodes[node].depth != kNever) return grammar;
  return fail(Status::invalid("\"tools\": no value satisfies the parameters of any of them"));
}

Status check_name(ToolDialect dialect, const std::string& name) {
  // The value is what some dialect looks for to tell how a call is written.
  const auto parsed = parse_tool_calls(dialect, format_tool_call(dialect, name, {{"x", "```json"}}));
  if (parsed.calls.size() == 1 && parsed.errors.empty() && parsed.content.empty() && parsed.calls[0].name == name)
    return {};
  return Status::invalid(fmt::format("\"tools\": the name {} cannot be told in calls of the dialect {}",
                                     Json(name).dump(), name_of(dialect)))
      .hint("letters, digits, _ and - can");
}

Result<Grammar> marked_calls(ToolDialect dialect, const MarkedForm& form, const CallsAsked& asked) {
  const CallMarks& marks = form.marks;
  CallGraph graph{.text = asked.text,
                  .stops = {std::string(marks.list_begin), std::string(marks.begin), std::string(marks.middle)}};
  if (!asked.calls) return Grammar{.calls = std::move(graph)};
  for (const auto& tool : asked.tools) TRY(check_name(dialect, tool.name));
  Grammar grammar = TRY(arguments_of_tools(asked.tools));
  set_guard(grammar, form.guard);

  const uint32_t number = form.numbered ? TRY(add_call_number(grammar)) : kNone;

  graph.first = add_part(graph, {.space = true});
  const uint32_t list_begin = add_part(graph, {.text = std::string(marks.list_begin)});
  const uint32_t begin = add_part(graph, {.text = std::string(marks.begin)});
  const uint32_t end = add_part(graph, {.text = std::string(marks.end), .space = true});
  const uint32_t list_end = add_part(graph, {.text = std::string(marks.list_end), .ends = true});
  graph.parts[graph.first].next = {list_begin};
  graph.behind_text = list_begin;
  graph.parts[list_begin].next = {begin};
  graph.parts[end].next = {list_end};
  if (!asked.one) graph.parts[end].next.push_back(begin);
  // Back to front, each leading to the one before.
  for (size_t i = 0; i < asked.tools.size(); ++i) {
    const std::string& name = asked.tools[i].name;
    if (grammar.nodes[grammar.entries[i]].depth == kNever) continue;
    uint32_t next = end;
    const auto put = [&](Part part) {
      part.next = {next};
      next = add_part(graph, std::move(part));
    };
    if (!form.tail.empty()) put({.text = form.tail});
    put({.node = grammar.entries[i], .space = true});
    if (!form.behind.empty()) put({.text = fmt::format(fmt::runtime(form.behind), name), .space = true});
    put({.text = std::string(marks.middle), .space = form.behind.empty()});
    if (form.numbered) put({.node = number});
    put({.text = fmt::format(fmt::runtime(form.head), name)});
    graph.parts[begin].next.push_back(next);
  }
  grammar.calls = std::move(graph);
  return grammar;
}

}  // namespace tandem::model::constraint
