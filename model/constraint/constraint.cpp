#include "model/constraint/constraint.h"

#include <fmt/format.h>

#include <algorithm>
#include <set>

#include "base/text.h"
#include "model/constraint/dialects/calls.h"
#include "model/constraint/schema_compiler.h"

namespace tandem::model::constraint {

namespace {

Result<std::shared_ptr<const Grammar>> shared(Grammar grammar) {
  return std::make_shared<const Grammar>(std::move(grammar));
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

Result<std::vector<OfferedTool>> read_tools(const Json& tools) {
  if (!tools.is_array() || tools.empty()) return fail(Status::invalid("\"tool_choice\" needs \"tools\""));
  std::vector<OfferedTool> out;
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

Result<Grammar> grammar_of(ToolDialect dialect, const CallsAsked& asked) {
  switch (dialect) {
    case ToolDialect::kHermes:
      return hermes_calls(asked);
    case ToolDialect::kLlama3:
      return llama3_calls(asked);
    case ToolDialect::kDeepseekV3:
      return deepseek_v3_calls(asked);
    case ToolDialect::kDeepseekV31:
      return deepseek_v31_calls(asked);
    case ToolDialect::kKimiK2:
      return kimi_k2_calls(asked);
    case ToolDialect::kQwen3Coder:
      return qwen3_coder_calls(asked);
    case ToolDialect::kGlm4:
      return glm4_calls(asked);
    case ToolDialect::kMistral:
      return mistral_calls(asked);
    case ToolDialect::kMistralV11:
      return mistral_v11_calls(asked);
  }
  return fail(Status::invalid(fmt::format("\"tool_choice\": no dialect has the number {}", static_cast<int>(dialect))));
}

// Clients write null for what they leave out.
Json without_nulls(const Json& object) {
  if (!object.is_object()) return object;
  Json kept = Json::object();
  for (const auto& [key, value] : object.items())
    if (!value.is_null()) kept[key] = value;
  return kept;
}

}  // namespace

Result<std::shared_ptr<const Grammar>> schema_grammar(const Json& schema) {
  return shared(TRY(compile_schema(schema)));
}

Result<std::shared_ptr<const Grammar>> response_grammar(const Json& given) {
  const Json response_format = without_nulls(given);
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
  const Json inner = without_nulls(response_format.value("json_schema", Json()));
  if (!inner.is_object() || !inner.contains("schema"))
    return fail(Status::invalid("\"response_format\": \"json_schema\" has no \"schema\""));
  TRY(check_keys(inner, {"name", "description", "schema", "strict"}));
  return schema_grammar(inner["schema"]);
}

Result<std::shared_ptr<const Grammar>> tool_grammar(ToolDialect dialect, const Json& tools, const Json& tool_choice,
                                                    Calls calls) {
  const Choice choice = TRY(read_choice(tool_choice));
  CallsAsked asked{.calls = choice.calls, .text = choice.text, .one = calls == Calls::kOne || !choice.name.empty()};
  if (!choice.calls) return shared(TRY(grammar_of(dialect, asked)));
  asked.tools = TRY(read_tools(tools));
  if (!choice.name.empty()) {
    std::vector<std::string> names;
    for (const auto& tool : asked.tools) names.push_back(tool.name);
    if (std::find(names.begin(), names.end(), choice.name) == names.end()) {
      const std::vector<std::string_view> known(names.begin(), names.end());
      return fail(Status::invalid(fmt::format("\"tool_choice\": no tool has the name \"{}\"{}", choice.name,
                                              did_you_mean(choice.name, known))));
    }
    std::erase_if(asked.tools, [&](const OfferedTool& tool) { return tool.name != choice.name; });
  }
  return shared(TRY(grammar_of(dialect, asked)));
}

}  // namespace tandem::model::constraint
