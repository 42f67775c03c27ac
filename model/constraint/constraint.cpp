#include "model/constraint/constraint.h"

#include <fmt/format.h>

#include <algorithm>
#include <set>

#include "base/text.h"
#include "model/constraint/schema_compiler.h"

namespace tandem::model::constraint {

namespace {

Result<std::shared_ptr<const Grammar>> shared(Grammar grammar) {
  return std::make_shared<const Grammar>(std::move(grammar));
}

struct DialectCalls {
  CallTags tags;
  std::string arguments_key;
  bool lists = false;  // of calls within one pair of tags
};

Result<DialectCalls> calls_of(ToolDialect dialect) {
  if (dialect == ToolDialect::kHermes)
    return DialectCalls{{.open = "<tool_call>", .close = "</tool_call>", .stop = "<tool_call>"}, "arguments", true};
  if (dialect == ToolDialect::kLlama3) return DialectCalls{{.separator = ";", .stop = "<|python_tag|>"}, "parameters"};
  return fail(
      Status::invalid(fmt::format("\"tool_choice\": calls of the dialect {} cannot be constrained", name_of(dialect)))
          .hint("the dialects hermes and llama3 can; without \"tool_choice\" calls are parsed as they come"));
}

struct Choice {
  bool calls = true, text = false;
  std::string name;  // of the one function; empty: any
};

Result<Choice> read_choice(const Json& choice) {
  if (choice == "none") return Choice{.calls = false, .text = true};
  if (choice == "auto") return Choice{.text = true};
  if (choice == "required") return Choice{};
  if (choice.is_object()) {
    const Json function = choice.value("function", Json());
    if (choice.value("type", Json()) == "function" && function.is_object() &&
        function.value("name", Json()).is_string() && !function["name"].get_ref<const std::string&>().empty())
      return Choice{.name = function["name"].get<std::string>()};
  }
  return fail(
      Status::invalid("\"tool_choice\" is none, auto, required, or "
                      "{\"type\": \"function\", \"function\": {\"name\": NAME}}"));
}

struct Tool {
  std::string name;
  Json parameters;
};

Result<std::vector<Tool>> read_tools(const Json& tools) {
  if (!tools.is_array() || tools.empty()) return fail(Status::invalid("\"tool_choice\" needs \"tools\""));
  std::vector<Tool> out;
  std::set<std::string> names;
  for (size_t i = 0; i < tools.size(); ++i) {
    const Json& function = tools[i].is_object() && tools[i].contains("function") ? tools[i]["function"] : tools[i];
    const Json name = function.is_object() ? function.value("name", Json()) : Json();
    if (!name.is_string() || name.get_ref<const std::string&>().empty())
      return fail(Status::invalid(fmt::format("\"tools\": number {} has no name", i + 1)));
    if (!names.insert(name.get<std::string>()).second)
      return fail(Status::invalid(fmt::format("\"tools\": two have the name {}", name.dump())));
    Json parameters = function.value("parameters", Json());
    if (parameters.is_null()) parameters = {{"type", "object"}, {"additionalProperties", false}};
    out.push_back({name.get<std::string>(), std::move(parameters)});
  }
  return out;
}

// One schema for a call of any of the tools, and where their parameters lie in it.
Json schema_of_calls(const std::vector<Tool>& tools, const std::string& arguments_key,
                     std::vector<Json::json_pointer>& roots) {
  Json calls = Json::array();
  for (size_t i = 0; i < tools.size(); ++i) {
    calls.push_back({{"type", "object"},
                     {"properties",
                      {{"name", {{"const", tools[i].name}}},
                       {arguments_key, {{"type", "object"}, {"allOf", Json::array({tools[i].parameters})}}}}},
                     {"required", {"name", arguments_key}},
                     {"additionalProperties", false}});
    roots.push_back(Json::json_pointer(fmt::format("/$defs/call/anyOf/{}/properties/{}/allOf/0", i, arguments_key)));
  }
  return {{"$defs", {{"call", {{"anyOf", std::move(calls)}}}}}};
}

// What is wrong in a tool's parameters, said in terms of the tools and not of the schema around them.
Status in_terms_of_tools(const Status& status, const std::vector<Tool>& tools, const std::string& arguments_key) {
  std::string message = status.message();
  for (size_t i = tools.size(); i-- > 0;) {
    const std::string before =
        fmt::format("the schema at #/$defs/call/anyOf/{}/properties/{}/allOf/0", i, arguments_key);
    if (message.starts_with(before))
      message.replace(0, before.size(), fmt::format("the parameters of the tool \"{}\" at #", tools[i].name));
  }
  Status out(status.code(), std::move(message));
  return status.hint().empty() ? out : std::move(out).hint(status.hint());
}

}  // namespace

Result<std::shared_ptr<const Grammar>> schema_grammar(const Json& schema) {
  return shared(TRY(compile_schema(schema)));
}

Result<std::shared_ptr<const Grammar>> response_grammar(const Json& response_format) {
  const Json type = response_format.is_object() ? response_format.value("type", Json()) : Json();
  if (type == "text") return std::shared_ptr<const Grammar>();
  if (type == "json_object") {
    TRY(check_keys(response_format, {"type"}));
    return schema_grammar({{"type", "object"}});
  }
  if (type != "json_schema") {
    return fail(Status::invalid(
        "\"response_format\" is {\"type\": \"json_schema\", \"json_schema\": {\"schema\": ..}}, or has the type "
        "json_object or text"));
  }
  TRY(check_keys(response_format, {"type", "json_schema"}));
  const Json inner = response_format.value("json_schema", Json());
  if (!inner.is_object() || !inner.contains("schema"))
    return fail(Status::invalid("\"response_format\": \"json_schema\" has no \"schema\""));
  TRY(check_keys(inner, {"name", "description", "schema", "strict"}));
  return schema_grammar(inner["schema"]);
}

Result<std::shared_ptr<const Grammar>> tool_grammar(ToolDialect dialect, const Json& tools, const Json& tool_choice) {
  const Choice choice = TRY(read_choice(tool_choice));
  const auto [dialect_tags, arguments_key, lists] = TRY(calls_of(dialect));
  CallTags tags = dialect_tags;
  tags.text = choice.text;
  if (!choice.calls) {
    tags.most = 0;
    return shared(Grammar{.tags = std::move(tags)});
  }
  std::vector<Tool> offered = TRY(read_tools(tools));
  if (!choice.name.empty()) {
    std::vector<std::string> names;
    for (const Tool& tool : offered) names.push_back(tool.name);
    if (std::find(names.begin(), names.end(), choice.name) == names.end()) {
      const std::vector<std::string_view> known(names.begin(), names.end());
      return fail(Status::invalid(fmt::format("\"tool_choice\": no tool has the name \"{}\"{}", choice.name,
                                              did_you_mean(choice.name, known))));
    }
    std::erase_if(offered, [&](const Tool& tool) { return tool.name != choice.name; });
    tags.most = 1;
  }
  if (!choice.text) tags.least = 1;
  std::vector<Json::json_pointer> roots;
  Json schema = schema_of_calls(offered, arguments_key, roots);
  const Json call = {{"$ref", "#/$defs/call"}};
  schema["anyOf"] = Json::array({call});
  if (lists) {
    Json list = {{"type", "array"}, {"items", call}, {"minItems", 1}};
    if (tags.most == 1) list["maxItems"] = 1;
    schema["anyOf"].push_back(std::move(list));
  }
  auto grammar = compile_schema(schema, roots);
  if (!grammar) return fail(in_terms_of_tools(grammar.error(), offered, arguments_key));
  grammar->tags = std::move(tags);
  return shared(std::move(*grammar));
}

}  // namespace tandem::model::constraint
