// What models write that is nearly a call, and what is no call at all: a call, content, or an error that the model can
// read, and never something else.
#include <gtest/gtest.h>

#include "model/message_format.h"

namespace tandem::model {
namespace {

Json tools_of(const char* text) { return *parse_json(text); }

const Json& writers() {
  static const Json made =
      tools_of(R"([{"type":"function","function":{"name":"write","parameters":{"type":"object","properties":{)"
               R"("path":{"type":"string"},"contents":{"type":"string"}}}}},)"
               R"({"type":"function","function":{"name":"get_weather","parameters":{"type":"object","properties":{)"
               R"("a":{"type":"integer"}}}}},{"type":"function","function":{"name":"f_1"}}])");
  return made;
}

// "name{arguments}" of each call, "error" of each malformed one, and the content behind a bar where there is some.
std::string said(ToolDialect dialect, std::string_view text, const Json& tools = writers()) {
  const auto parsed = parse_message({.dialect = dialect}, text, tools);
  std::string out;
  for (const size_t i : parsed.order) {
    if (!out.empty()) out += ' ';
    out += i < parsed.calls.size() ? parsed.calls[i].name + dump_json(parsed.calls[i].arguments)
                                   : "error: " + parsed.errors[i - parsed.calls.size()].message;
  }
  return parsed.content.empty() ? out : out + "|" + parsed.content;
}

TEST(ToolMisreadings, a_text_of_llama_is_a_call_only_where_it_names_a_tool_and_has_arguments) {
  const auto llama = [](std::string_view text, const Json& tools = writers()) {
    return said(ToolDialect::kLlama3, text, tools);
  };
  for (const std::string text : {R"({"city": "Oslo", "temp": 5})", "{1, 2} is a set.", R"({"name": "Ada", "age": 36})",
                                 R"({"name": 7})", "{", "{}", R"({"name": "wri)", R"({"type": "object"})", "{\"name\"}",
                                 "{\n  \"a\": [1,\n  2]}\n", R"({"name": "other", "parameters": {}})"})
    EXPECT_EQ(llama(text), "|" + text);
  EXPECT_EQ(llama(R"({"name": "Ada", "age": 36})", Json()), R"(|{"name": "Ada", "age": 36})") << "tools are not known";
  EXPECT_EQ(llama(R"({"name": "Ada"})", Json()), R"(|{"name": "Ada"})");
  const std::string call = R"({"name": "write", "parameters": {"path": "a"}})";
  EXPECT_EQ(llama(call), R"(write{"path":"a"})");
  EXPECT_EQ(llama(call, Json()), R"(write{"path":"a"})");
  EXPECT_EQ(llama(call, Json::array()), "|" + call) << "no tools are offered";
  EXPECT_EQ(llama("<|python_tag|>" + call), R"(write{"path":"a"})");
  EXPECT_EQ(llama(R"({"name": "write", "parameters": {"path": "a"})"),
            "error: tool call 1: it is not a whole JSON object");
  EXPECT_EQ(llama(R"({"name": "write", "path": "a"})"),
            "error: tool call 1: the call has the unknown key \"path\"; it takes \"name\" and \"parameters\"")
      << "what comes first decides";
  EXPECT_EQ(llama(R"({"name": "write", "parameters": {"path": }})").substr(0, 19), "error: tool call 1:");
}

TEST(ToolMisreadings, type_function_around_a_call_is_passed_over) {
  for (const auto dialect : {ToolDialect::kLlama3, ToolDialect::kHermes, ToolDialect::kMistral}) {
    const std::string key = dialect == ToolDialect::kLlama3 ? "parameters" : "arguments";
    for (const std::string& object :
         {R"({"type": "function", "name": "get_weather", ")" + key + R"(": {"a": 1}})",
          R"({"type": "function", "function": {"name": "get_weather", ")" + key + R"(": {"a": 1}}})"}) {
      const std::string text = dialect == ToolDialect::kLlama3   ? object
                               : dialect == ToolDialect::kHermes ? "<tool_call>\n" + object + "\n</tool_call>"
                                                                 : "[TOOL_CALLS]" + object;
      EXPECT_EQ(said(dialect, text), R"(get_weather{"a":1})");
      EXPECT_EQ(said(dialect, text, Json()), R"(get_weather{"a":1})");
    }
  }
}

TEST(ToolMisreadings, texts_of_values_are_read_as_json_or_as_python_writes_them) {
  const Json tools = tools_of(
      R"([{"name":"f","parameters":{"properties":{"b":{"type":"boolean"},"n":{"anyOf":[{"type":"integer"},)"
      R"({"type":"null"}]},"l":{"type":"array"},"o":{"type":"object"},"s":{"type":"string"},"x":{"type":"number"}}}}])");
  const struct {
    const char *key, *text, *value;
  } cases[] = {{"b", "True", "true"},
               {"b", "False", "false"},
               {"b", "true", "true"},
               {"b", "yes", "\"yes\""},
               {"n", "None", "null"},
               {"n", "null", "null"},
               {"n", "12345678901234567890123", "12345678901234567890123"},
               {"l", "['a', \"b\", None, True]", R"(["a","b",null,true])"},
               {"l", "[1, [2]]", "[1,[2]]"},
               {"l", "('a', 1)", R"(["a",1])"},
               {"o", "{'k': [True], 'm': {'n': None}}", R"({"k":[true],"m":{"n":null}})"},
               {"o", "{\"k\": true}", R"({"k":true})"},
               {"l", "['a'", "\"['a'\""},
               {"s", "None", "\"None\""},
               {"s", "True", "\"True\""},
               {"s", "['a']", "\"['a']\""},
               {"x", "+1.5", "1.5"}};
  for (const auto& item : cases) {
    const std::string coder = std::string("<tool_call>\n<function=f>\n<parameter=") + item.key + ">\n" + item.text +
                              "\n</parameter>\n</function>\n</tool_call>";
    const std::string glm = std::string("<tool_call>f\n<arg_key>") + item.key + "</arg_key>\n<arg_value>" + item.text +
                            "</arg_value>\n</tool_call>";
    const std::string expected = std::string("f{\"") + item.key + "\":" + item.value + "}";
    EXPECT_EQ(said(ToolDialect::kQwen3Coder, coder, tools), expected);
    EXPECT_EQ(said(ToolDialect::kGlm4, glm, tools), expected);
  }
}

TEST(ToolMisreadings, whole_numbers_of_arguments_keep_their_digits) {
  const std::string arguments = R"({"u":12345678901234567890123})";
  for (const auto dialect : kToolDialects) {
    if (has_text_values(dialect)) continue;
    EXPECT_EQ(said(dialect, format_tool_call(dialect, "write", *parse_json(arguments))), "write" + arguments)
        << name_of(dialect);
  }
}

TEST(ToolMisreadings, a_missing_end_of_a_value_is_an_error_and_never_part_of_the_value) {
  const auto coder = [](std::string_view text) { return said(ToolDialect::kQwen3Coder, text); };
  const std::string missing = "error: tool call 1: the parameter \"path\" has no closing </parameter>";
  const std::string open = "<tool_call>\n<function=write>\n<parameter=path>\na\n", end = "</function>\n</tool_call>";
  EXPECT_EQ(coder(open + "<parameter=contents>\nb\n</parameter>\n" + end), missing);
  EXPECT_EQ(coder(open + end), missing);
  EXPECT_EQ(coder(open), missing);
  // The call behind it is read.
  const std::string next = "\n<tool_call>\n<function=get_weather>\n<parameter=a>\n1\n</parameter>\n" + end;
  EXPECT_EQ(coder(open + end + next), missing + R"( get_weather{"a":1})");
  EXPECT_EQ(coder(open + end + "\nand then" + next), missing + R"( get_weather{"a":1}|and then)");
  // A value that is about calls is a value.
  const std::string about = "doc: <tool_call>\n<function=a>\n</function>\n</tool_call> end";
  EXPECT_EQ(coder("<tool_call>\n<function=write>\n<parameter=contents>\n" + about + "\n</parameter>\n" + end),
            "write" + dump_json(Json{{"contents", about}}));
  EXPECT_EQ(coder("<tool_call>\n<function=write>\n<parameter=path>\nx <parameter=contents>\n</parameter>\n" + end),
            "write" + dump_json(Json{{"path", "x <parameter=contents>"}}));
  const auto glm = [](std::string_view text) { return said(ToolDialect::kGlm4, text); };
  const std::string of_glm = "error: tool call 1: <arg_value> of \"path\" has no closing </arg_value>";
  const std::string glm_open = "<tool_call>write\n<arg_key>path</arg_key>\n<arg_value>a\n";
  EXPECT_EQ(glm(glm_open + "<arg_key>contents</arg_key>\n<arg_value>b</arg_value>\n</tool_call>"), of_glm);
  EXPECT_EQ(glm(glm_open + "</tool_call>\n<tool_call>get_weather\n<arg_key>a</arg_key>\n<arg_value>1</arg_value>\n"
                           "</tool_call>"),
            of_glm + R"( get_weather{"a":1})");
  EXPECT_EQ(glm("<tool_call>write\n<arg_key>path<arg_value>a</arg_value>\n<arg_key>contents</arg_key>\n"
                "<arg_value>b</arg_value>\n</tool_call>"),
            "error: tool call 1: <arg_key> has no closing </arg_key>");
  EXPECT_EQ(said(ToolDialect::kHermes, R"(<tool_call>{"name":"write","arguments":{}}
<tool_call>{"name":"f_1","arguments":{}}</tool_call>)"),
            "error: tool call 1: it has no closing </tool_call> f_1{}");
}

TEST(ToolMisreadings, a_call_without_its_beginning_is_the_call_or_an_error) {
  const std::string inner = "<function=write>\n<parameter=path>\na\n</parameter>\n</function>";
  for (const std::string& text : {inner, inner + "\n</tool_call>"}) {
    EXPECT_EQ(said(ToolDialect::kQwen3Coder, "Let me.\n" + text + "\nSo."), R"(write{"path":"a"}|Let me.
So.)");
    EXPECT_EQ(said(ToolDialect::kQwen3Coder, text, Json()), R"(write{"path":"a"})");
  }
  const std::string code = "Use <function=of> or <function=\n.";
  EXPECT_EQ(said(ToolDialect::kQwen3Coder, code), "|" + code) << "nobody offered that";
  EXPECT_EQ(said(ToolDialect::kHermes, R"(Let me. {"name": "write", "arguments": {}}
</tool_call>)"),
            R"(error: tool call 1: it has no <tool_call> before it|Let me. {"name": "write", "arguments": {}})");
  EXPECT_EQ(said(ToolDialect::kHermes, "A </tool_call> ends it."), "|A </tool_call> ends it.");
  EXPECT_EQ(said(ToolDialect::kKimiK2,
                 "<|tool_calls_section_begin|>functions.write:0<|tool_call_argument_begin|>{}"
                 "<|tool_call_end|><|tool_calls_section_end|>"),
            "error: tool call 1: it has no <|tool_call_begin|> before it");
  EXPECT_EQ(said(ToolDialect::kDeepseekV31, "write<｜tool▁sep｜>{}<｜tool▁call▁end｜> ok"),
            "error: tool call 1: it has no <｜tool▁call▁begin｜> before it|write\nok");
}

TEST(ToolMisreadings, parts_of_a_call_without_its_beginning_are_an_error) {
  EXPECT_EQ(said(ToolDialect::kQwen3Coder, "So.\n<parameter=path>\na\n</parameter>\n</function>\n</tool_call> ok"),
            "error: tool call 1: a parameter has no <function=NAME> before it|So.\nok");
  EXPECT_EQ(
      said(ToolDialect::kQwen3Coder, "<parameter=path>\na\n<tool_call>\n<function=f_1>\n</function>\n</tool_call>"),
      "error: tool call 1: a parameter has no <function=NAME> before it f_1{}");
  for (const char* text : {"Tags like <parameter=path> hold values.", "\n<parameter=other>\nx", "<arg_key> is a tag",
                           "<arg_key>x</arg_key> alone", "x</arg_value> y", "f[ARGS] takes", "A </tool_call>."})
    for (const auto dialect : {ToolDialect::kQwen3Coder, ToolDialect::kGlm4, ToolDialect::kMistral})
      EXPECT_TRUE(parse_message({.dialect = dialect}, text, writers()).errors.empty()) << text;
  const std::string glm = "<arg_key>path</arg_key>\n<arg_value>a</arg_value>\n</tool_call>";
  EXPECT_EQ(said(ToolDialect::kGlm4, "write\n" + glm + " ok"),
            "error: tool call 1: it has no <tool_call> before it|write\nok");
  EXPECT_EQ(said(ToolDialect::kGlm4, glm.substr(0, 40) + "\n<tool_call>f_1</tool_call>"),
            "error: tool call 1: it has no <tool_call> before it f_1{}");
  EXPECT_EQ(said(ToolDialect::kGlm4,
                 "<tool_call>write\n<arg_key>contents</arg_key>\n<arg_value><tool_call>f_1\n<arg_key>"
                 "x</arg_key><arg_value>1</arg_value></tool_call></arg_value>\n</tool_call>")
                    .find("error: tool call 2: it has no <tool_call> before it") != std::string::npos,
            true)
      << "what was cut off is told";
  EXPECT_EQ(said(ToolDialect::kMistralV11, "write[ARGS]{\"path\": \"a\"} ok"),
            "error: tool call 1: it has no [TOOL_CALLS] before it|write\nok");
  EXPECT_EQ(said(ToolDialect::kKimiK2, "{}<|tool_call_end|><|tool_calls_section_end|>"),
            "error: tool call 1: it has no <|tool_call_begin|> before it|{}");
  EXPECT_EQ(
      said(ToolDialect::kDeepseekV3, "write\n```json\n{}\n```<｜tool▁call▁end｜><｜tool▁calls▁end｜>").substr(0, 19),
      "error: tool call 1:");
}

TEST(ToolMisreadings, a_missing_end_of_a_call_between_marks_hides_no_other_call) {
  const auto kimi = [](std::string text) { return said(ToolDialect::kKimiK2, text); };
  const std::string begin = "<|tool_call_begin|>functions.f_1:0<|tool_call_argument_begin|>", end = "<|tool_call_end|>",
                    missing = "error: tool call 1: it has no <|tool_call_end|>";
  EXPECT_EQ(kimi(begin + "{}" + begin + "{}" + end), missing + " f_1{}");
  EXPECT_EQ(kimi(begin + "{\"a\": " + begin + "{}" + end), missing + " f_1{}");
  EXPECT_EQ(kimi(begin + "x" + begin + "{}" + end), missing + " f_1{}");
  EXPECT_EQ(kimi(begin + "{}<|tool_calls_section_end|> ok"), missing + "|ok");
  EXPECT_EQ(kimi("<|tool_call_begin|>f_1" + begin + "{}" + end),
            "error: tool call 1: it has no <|tool_call_end|> f_1{}");
  EXPECT_EQ(said(ToolDialect::kDeepseekV3,
                 "<｜tool▁call▁begin｜>function<｜tool▁sep｜>f_1\n```json\n{}\n```\n"
                 "<｜tool▁call▁begin｜>function<｜tool▁sep｜>f_1\n```json\n{}\n```"
                 "<｜tool▁call▁end｜>"),
            "error: tool call 1: it has no <｜tool▁call▁end｜> f_1{}");
}

TEST(ToolMisreadings, what_is_no_name_is_an_error) {
  EXPECT_EQ(said(ToolDialect::kGlm4, R"(<tool_call>{"name": "write", "arguments": {}}</tool_call>)"),
            R"(error: tool call 1: "{"name": "write", "arguments": {}}" is no tool's name)");
  EXPECT_EQ(said(ToolDialect::kGlm4, "<tool_call>write(path='a')</tool_call>"),
            "error: tool call 1: \"write(path='a')\" is no tool's name");
  EXPECT_EQ(said(ToolDialect::kQwen3Coder, "<tool_call>\n<function=write path=a>\n</function>\n</tool_call>"),
            "error: tool call 1: \"write path=a\" is no function's name");
  EXPECT_EQ(said(ToolDialect::kLlama3, R"({"function": "f_1", "parameters": {}})"), "f_1{}");
  EXPECT_EQ(said(ToolDialect::kLlama3, R"({"name": "\"f_1\"", "parameters": {}})"), "f_1{}");
  EXPECT_EQ(said(ToolDialect::kHermes, R"(<tool_call>{"name": "'f_1'", "arguments": {}}</tool_call>)"), "f_1{}");
}

TEST(ToolMisreadings, quotes_around_names_are_no_part_of_them) {
  EXPECT_EQ(said(ToolDialect::kQwen3Coder,
                 "<tool_call>\n<function=\"write\">\n<parameter='path'>\na\n</parameter>\n</function>\n</tool_call>"),
            R"(write{"path":"a"})");
  EXPECT_EQ(said(ToolDialect::kGlm4,
                 "<tool_call>\"write\"\n<arg_key>\"path\"</arg_key>\n<arg_value>\"a\"</arg_value>\n"
                 "</tool_call>"),
            R"(write{"path":"\"a\""})")
      << "a value is what stands there";
  EXPECT_EQ(said(ToolDialect::kDeepseekV31, "<｜tool▁call▁begin｜>\"write\"<｜tool▁sep｜>{}<｜tool▁call▁end｜>"),
            "write{}");
  EXPECT_EQ(said(ToolDialect::kKimiK2,
                 "<|tool_call_begin|>\"functions.write:0\"<|tool_call_argument_begin|>{}"
                 "<|tool_call_end|>"),
            "write{}");
}

TEST(ToolMisreadings, ids_of_kimi_name_a_tool_in_many_shapes) {
  const auto kimi = [](std::string id, const Json& tools = writers()) {
    return said(ToolDialect::kKimiK2, "<|tool_call_begin|>" + id + "<|tool_call_argument_begin|>{}<|tool_call_end|>",
                tools);
  };
  for (const char* id :
       {"functions.get_weather:0", "functions_get_weather_1", "functions.get_weather_12", "functions.get_weather",
        "get_weather:3", "get_weather_1", "get_weather", "functions:get_weather:1"})
    EXPECT_EQ(kimi(id), "get_weather{}") << id;
  EXPECT_EQ(kimi("f_1"), "f_1{}") << "a tool's own number is its own";
  EXPECT_EQ(kimi("functions.f_1:2"), "f_1{}");
  EXPECT_EQ(kimi("f_1_2"), "f_1{}");
  EXPECT_EQ(kimi("functions.other:0"), "other{}") << "who runs it says that there is none";
  EXPECT_EQ(kimi("call_8a7b"),
            "error: tool call 1: the call's id \"call_8a7b\" is not functions.NAME:NUMBER with NAME one of f_1, "
            "get_weather, write");
  EXPECT_EQ(kimi("functions_get_weather_1", Json()), "get_weather{}");
  EXPECT_EQ(kimi("", Json()).substr(0, 7), "error: ");
}

TEST(ToolMisreadings, marks_in_strings_of_arguments_end_no_call) {
  for (const auto dialect : kToolDialects) {
    if (has_text_values(dialect)) continue;
    std::string marks;
    for (const auto writer : kToolDialects) marks += format_tool_call(writer, "get_weather", {{"a", 1}}) + "\n";
    const Json arguments = {{"contents", marks}};
    EXPECT_EQ(said(dialect, format_tool_call(dialect, "write", arguments)), "write" + dump_json(arguments))
        << name_of(dialect);
  }
}

TEST(ToolMisreadings, calls_of_mistral_are_read_in_all_their_notations) {
  const auto mistral = [](std::string_view text) { return said(ToolDialect::kMistral, text); };
  EXPECT_EQ(
      mistral(
          R"(Hm. [TOOL_CALLS] [{"name": "write", "arguments": {"path": "]"}, "id": "abc123def"}, {"name": "f_1"}])"),
      R"(write{"path":"]"} f_1{}|Hm.)");
  EXPECT_EQ(mistral(R"([TOOL_CALLS]write[ARGS]{"path": "[ARGS]"}[TOOL_CALLS]f_1[CALL_ID]abc[ARGS]{})"),
            R"(write{"path":"[ARGS]"} f_1{})");
  EXPECT_EQ(mistral(R"([TOOL_CALLS]write{"path": "a"} and so)"), R"(write{"path":"a"}|and so)");
  EXPECT_EQ(mistral("[TOOL_CALLS]"),
            "error: tool call 1: there is neither a list of calls nor NAME[ARGS]{..} behind [TOOL_CALLS]");
  EXPECT_EQ(mistral("[TOOL_CALLS]f[TOOL_CALLS]f_1[ARGS]{}"),
            "error: tool call 1: there is neither a list of calls nor NAME[ARGS]{..} behind [TOOL_CALLS] f_1{}");
  EXPECT_EQ(mistral("[TOOL_CALLS][{\"name\": \"write\""), "error: tool call 1: its JSON has no end");
  const auto one = parse_message({.dialect = ToolDialect::kMistral},
                                 R"([TOOL_CALLS][{"name":"f_1","arguments":{},"id":"abc123def"}])", writers());
  EXPECT_EQ(one.calls.at(0).id, "abc123def");
}

}  // namespace
}  // namespace tandem::model
