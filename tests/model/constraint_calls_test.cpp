// Tool calls under a grammar: what is let through is what the dialect's parser reads as calls of the tools.
#include "tests/model/constraint_parts.h"
#include "tests/repetitions.h"

namespace tandem::model::constraint {
namespace {

const char* const kTools =
    R"([{"type":"function","function":{"name":"read","parameters":{"type":"object","properties":{"path":{"type":"string"},)"
    R"("lines":{"$ref":"#/$defs/n"}},"required":["path"],"additionalProperties":false,"$defs":{"n":{"type":"integer"}}}}},)"
    R"({"type":"function","function":{"name":"stop"}}])";

std::shared_ptr<const Grammar> calls(ToolDialect dialect, const Json& choice) {
  auto grammar = tool_grammar(dialect, *parse_json(kTools), choice);
  EXPECT_TRUE(grammar) << (grammar ? "" : grammar.error().to_string());
  return grammar ? *grammar : nullptr;
}

TEST(Constraint, hermes_calls_are_of_the_tools_that_are_offered) {
  const std::string read =
      "<tool_call>\n{\"name\": \"read\", \"arguments\": {\"path\": \"a\", \"lines\": 3}}\n</tool_call>";
  const std::string stop = "<tool_call>{\"name\":\"stop\",\"arguments\":{}}</tool_call>";
  const std::string list = "<tool_call>[{\"name\": \"stop\", \"arguments\": {}}]</tool_call>";
  const std::string wrong = "<tool_call>{\"name\":\"read\",\"arguments\":{\"path\":1}}</tool_call>";
  const std::string stranger = "<tool_call>{\"name\":\"write\",\"arguments\":{}}</tool_call>";
  const auto automatic = calls(ToolDialect::kHermes, "auto");
  for (const auto& text : {std::string(), std::string("I <tool_cannot> \xff say."), read, "Let me look. " + read,
                           read + "\n" + stop, stop + list})
    EXPECT_TRUE(lets_through(automatic, text)) << text;
  for (const auto& text :
       {wrong, "x" + wrong, stranger, read + " and then", read + "<tool_call>", std::string("<tool_call>")})
    EXPECT_FALSE(lets_through(automatic, text)) << text;

  const auto required = calls(ToolDialect::kHermes, "required");
  EXPECT_TRUE(lets_through(required, " " + read + "\n" + stop));
  for (const auto& text : {std::string(), std::string("Text."), "Text. " + read, read + "\n"})
    EXPECT_FALSE(lets_through(required, text)) << text;

  const auto named = calls(ToolDialect::kHermes, {{"type", "function"}, {"function", {{"name", "stop"}}}});
  EXPECT_TRUE(lets_through(named, stop));
  EXPECT_TRUE(lets_through(named, list));
  EXPECT_FALSE(lets_through(named, read));
  EXPECT_FALSE(lets_through(named, stop + stop));

  const auto none = calls(ToolDialect::kHermes, "none");
  EXPECT_TRUE(lets_through(none, "Text <tool_call without end"));
  EXPECT_FALSE(lets_through(none, stop));
}

TEST(Constraint, llama_calls_are_the_whole_message) {
  const std::string stop = "{\"name\": \"stop\", \"parameters\": {}}";
  const auto automatic = calls(ToolDialect::kLlama3, "auto");
  for (const auto& text : {std::string(), std::string("Text {."), stop, " " + stop + "; " + stop})
    EXPECT_TRUE(lets_through(automatic, text)) << text;
  for (const auto& text : {std::string("{}"), stop + "x", stop + ";", "Text <|python_tag|>" + stop})
    EXPECT_FALSE(lets_through(automatic, text)) << text;
  EXPECT_FALSE(lets_through(calls(ToolDialect::kLlama3, "required"), "Text"));
  EXPECT_FALSE(lets_through(calls(ToolDialect::kLlama3, "none"), stop));
  EXPECT_TRUE(lets_through(calls(ToolDialect::kLlama3, "none"), "Text " + stop));
}

TEST(Constraint, wrong_requests_are_named) {
  const auto message = [](const auto& result) { return result ? std::string() : result.error().message(); };
  const Json tools = *parse_json(kTools);
  EXPECT_NE(message(tool_grammar(ToolDialect::kHermes, {}, "auto")).find("needs \"tools\""), std::string::npos);
  EXPECT_NE(message(tool_grammar(ToolDialect::kHermes, tools, "maybe")).find("none, auto, required"),
            std::string::npos);
  EXPECT_NE(message(tool_grammar(ToolDialect::kHermes, tools, {{"type", "function"}, {"function", {{"name", "raed"}}}}))
                .find("did you mean \"read\""),
            std::string::npos);
  const auto wrong = *parse_json(R"([{"function":{"name":"f","parameters":{"properties":{"a":{"not":{}}}}}}])");
  EXPECT_NE(message(tool_grammar(ToolDialect::kHermes, wrong, "auto"))
                .find("the parameters of the tool \"f\" at #/properties/a: \"not\" is not implemented"),
            std::string::npos)
      << message(tool_grammar(ToolDialect::kHermes, wrong, "auto"));
  EXPECT_NE(message(response_grammar({{"type", "yaml"}})).find("json_object or text"), std::string::npos);
  EXPECT_NE(message(response_grammar({{"type", "json_schema"}})).find("has no \"schema\""), std::string::npos);
  EXPECT_EQ(*response_grammar({{"type", "text"}}), nullptr);
  EXPECT_FALSE(lets_through(*response_grammar({{"type", "json_object"}}), "[]"));
  EXPECT_TRUE(lets_through(*response_grammar({{"type", "json_object"}}), "{\"a\": [1]}"));
}

}  // namespace
}  // namespace tandem::model::constraint
