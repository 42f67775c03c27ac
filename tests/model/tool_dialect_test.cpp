#include "model/tool_dialect.h"

#include <gtest/gtest.h>

#include <fstream>

#include "base/file.h"
#include "base/random.h"

namespace tandem::model {
namespace {

ParsedMessage hermes(std::string_view text) { return parse_tool_calls(ToolDialect::kHermes, text); }

TEST(ToolDialect, text_without_calls_is_left_as_it_is) {
  const auto parsed = hermes(" Hello {\"name\": 1} \n");
  EXPECT_EQ(parsed.content, " Hello {\"name\": 1} \n");
  EXPECT_TRUE(parsed.calls.empty() && parsed.errors.empty());
}

TEST(ToolDialect, several_calls_and_the_text_beside_them_are_found) {
  const std::string text =
      "Let me look.\n<tool_call>\n{\"name\": \"read_file\", \"arguments\": {\"path\": \"a.txt\"}}\n</tool_call>\n"
      "<tool_call>{\"name\":\"grep\",\"arguments\":{\"pattern\":\"x\",\"n\":2}}</tool_call> Done.";
  const auto parsed = hermes(text);
  ASSERT_EQ(parsed.calls.size(), 2u);
  EXPECT_EQ(parsed.content, "Let me look.\nDone.");
  EXPECT_EQ(parsed.calls[0].name, "read_file");
  EXPECT_EQ(parsed.calls[1].arguments, (Json{{"pattern", "x"}, {"n", 2}}));
  EXPECT_EQ(text.substr(parsed.calls[1].begin, 11), "<tool_call>");
  EXPECT_EQ(text.substr(parsed.calls[1].end), " Done.");
}

TEST(ToolDialect, tags_inside_of_strings_do_not_end_a_call) {
  const auto parsed =
      hermes(R"(<tool_call>{"name":"write","arguments":{"text":"a </tool_call> <tool_call> b"}}</tool_call>)");
  ASSERT_EQ(parsed.calls.size(), 1u);
  EXPECT_EQ(parsed.calls[0].arguments["text"], "a </tool_call> <tool_call> b");
}

TEST(ToolDialect, malformed_calls_say_what_is_wrong_and_leave_the_others) {
  const struct {
    const char* call;
    const char* expected;
  } cases[] = {
      {R"({"name":"a","arguments":{"x":}})", "not JSON at line 1 column 30"},
      {R"({"name":"a","arguments":{"x":1})", "the JSON of the call is wrong"},
      {R"({"arguments":{}})", "no \"name\""},
      {R"({"name":7,"arguments":{}})", "no \"name\""},
      {R"({"name":"","arguments":{}})", "no \"name\""},
      {R"({"name":"a","arguments":[1]})", "\"arguments\" is not a JSON object"},
      {R"({"name":"a","args":{}})", "unknown key \"args\""},
      {R"({"name":"a","name":"b"})", "twice"},
      {R"(["a"])", "not a JSON object"},
      {"", "not JSON"},
  };
  for (const auto& item : cases) {
    const auto parsed = hermes(std::string("<tool_call>") + item.call +
                               "</tool_call><tool_call>{\"name\":\"ok\",\"arguments\":{}}</tool_call>");
    ASSERT_EQ(parsed.errors.size(), 1u) << item.call;
    EXPECT_NE(parsed.errors[0].message.find(item.expected), std::string::npos) << parsed.errors[0].message;
    EXPECT_EQ(parsed.errors[0].message.substr(0, 12), "tool call 1:");
    ASSERT_EQ(parsed.calls.size(), 1u) << item.call;
    EXPECT_EQ(parsed.order, (std::vector<size_t>{1, 0}));
  }
  const auto open = hermes("x <tool_call>{\"name\":\"a\"");
  ASSERT_EQ(open.errors.size(), 1u);
  EXPECT_EQ(open.errors[0].message, "tool call 1: it has no closing </tool_call>");
  EXPECT_EQ(open.content, "x");
}

TEST(ToolDialect, calls_without_arguments_and_with_arguments_as_text_are_read) {
  EXPECT_EQ(hermes(R"(<tool_call>{"name":"a"}</tool_call>)").calls.at(0).arguments, Json::object());
  EXPECT_EQ(hermes(R"(<tool_call>{"name":"a","arguments":"{\"b\":1}"}</tool_call>)").calls.at(0).arguments,
            (Json{{"b", 1}}));
}

TEST(ToolDialect, llama_calls_are_the_whole_message_or_follow_the_python_tag) {
  const auto one = parse_tool_calls(ToolDialect::kLlama3, "{\"name\": \"a\", \"parameters\": {\"x\": 1}}");
  ASSERT_EQ(one.calls.size(), 1u);
  EXPECT_EQ(one.calls[0].arguments, (Json{{"x", 1}}));
  const auto two = parse_tool_calls(
      ToolDialect::kLlama3, "<|python_tag|>{\"name\":\"a\",\"parameters\":{}}; {\"name\":\"b\",\"parameters\":{}}");
  ASSERT_EQ(two.calls.size(), 2u);
  EXPECT_EQ(two.content, "");
  EXPECT_TRUE(parse_tool_calls(ToolDialect::kLlama3, "The {\"name\"} is.").calls.empty());
  EXPECT_EQ(parse_tool_calls(ToolDialect::kLlama3, "{\"name\": \"a\", \"parameters\": {").errors.size(), 1u);
}

ParsedMessage llama(std::string_view text) { return parse_tool_calls(ToolDialect::kLlama3, text); }

TEST(ToolDialect, llama_s_calls_in_python_are_what_python_reads_in_them) {
  std::ifstream lines(TANDEM_SOURCE_DIR "/tests/golden/python_calls.jsonl");
  size_t count = 0;
  for (std::string line; std::getline(lines, line); ++count) {
    const Json expected = *parse_json(line);
    const auto parsed = llama("<|python_tag|>" + expected["text"].get<std::string>());
    ASSERT_EQ(parsed.calls.size(), 1u) << line << (parsed.errors.empty() ? "" : parsed.errors[0].message);
    EXPECT_EQ(parsed.calls[0].name, expected["name"]);
    EXPECT_EQ(dump_json(parsed.calls[0].arguments), dump_json(expected["arguments"])) << line;
    EXPECT_EQ(parsed.content, "");
  }
  EXPECT_GT(count, 200u);
}

TEST(ToolDialect, llama_s_code_is_a_call_of_the_interpreter) {
  for (const char* code : {"print(1)", "x = 1\nprint(x)", "f.call", "f.call(1)", "f.call(a == 1)",
                           "subprocess.call(['ls'])", "a.b.call(x=1)", "# café", "1"}) {
    const auto parsed = llama("Look: <|python_tag|>\n" + std::string(code) + "\n");
    ASSERT_EQ(parsed.calls.size(), 1u) << code;
    EXPECT_EQ(parsed.calls[0].name, "code_interpreter") << code;
    EXPECT_EQ(parsed.calls[0].arguments, (Json{{"code", code}}));
    EXPECT_EQ(parsed.content, "Look:");
  }
  EXPECT_TRUE(llama("<|python_tag|> ").calls.empty());
  EXPECT_TRUE(llama("print(1)").calls.empty());
}

TEST(ToolDialect, llama_s_calls_may_follow_each_other) {
  const auto parsed = llama("<|python_tag|>a.call(x=1); b.call()\n{\"name\": \"c\"}<|python_tag|>print(2)");
  ASSERT_EQ(parsed.calls.size(), 4u);
  EXPECT_EQ(parsed.calls[1].name, "b");
  EXPECT_EQ(parsed.calls[2].name, "c");
  EXPECT_EQ(parsed.calls[3].arguments, (Json{{"code", "print(2)"}}));
  const auto code = llama("{\"name\": \"c\", \"parameters\": {}} and so on");
  ASSERT_EQ(code.calls.size(), 1u);
  ASSERT_EQ(code.errors.size(), 1u);
  EXPECT_EQ(code.errors[0].message, "tool call 2: it is neither a JSON object nor NAME.call(key=value)");
}

TEST(ToolDialect, a_malformed_call_in_python_names_the_place) {
  const struct {
    const char *call, *error;
  } cases[] = {
      {"f.call(a=", "there is no literal at line 1 column 10"},
      {"f.call(a=1, b=x)", "x is no literal at line 1 column 15"},
      {"f.call(a=1,\n a=2)", "a is given twice at line 2 column 5"},
      {"f.call(a='b", "a text has no end at line 1 column 10"},
      {"f.call(a=\"b\nc\")", "a text has no end at line 1 column 10"},
      {"f.call(a='\\ud800')", "a text has an escape that means no character"},
      {"f.call(a='\\x4')", "a text has an escape that means no character"},
      {"f.call(a='\\N{DASH}')", "a text has an escape that means no character"},
      {"f.call(a=1 b=2)", "a comma or the closing bracket is missing at line 1 column 12"},
      {"f.call(a=1, 2)", "a keyword and = are missing at line 1 column 13"},
      {"f.call(a=[1 2])", "a comma or ] is missing at line 1 column 13"},
      {"f.call(a={1: 2})", "a dictionary's key is no text at line 1 column 11"},
      {"f.call(a={'b' 2})", "a colon is missing at line 1 column 15"},
      {"f.call(a=1e999)", "there is no literal at line 1 column 10"},
      {"f.call(a=nan)", "nan is no literal at line 1 column 10"},
  };
  for (const auto& item : cases) {
    const auto parsed = llama("<|python_tag|>" + std::string(item.call));
    ASSERT_EQ(parsed.errors.size(), 1u) << item.call;
    EXPECT_NE(parsed.errors[0].message.find("tool call 1: " + std::string(item.error)), std::string::npos)
        << parsed.errors[0].message;
  }
  const auto deep = llama("<|python_tag|>f.call(a=" + std::string(10'000, '['));
  ASSERT_EQ(deep.errors.size(), 1u);
  EXPECT_NE(deep.errors[0].message.find("nested more than 64 deep"), std::string::npos);
}

TEST(ToolDialect, what_is_formatted_is_parsed_back) {
  const Json arguments = {{"text", "a\n\"b\" </tool_call> é"}, {"n", nullptr}, {"l", {1, 2.5, true}}};
  for (const auto dialect : kToolDialects) {
    if (has_text_values(dialect)) continue;
    const auto parsed = parse_tool_calls(dialect, format_tool_call(dialect, "tool", arguments));
    ASSERT_EQ(parsed.calls.size(), 1u) << name_of(dialect);
    EXPECT_EQ(parsed.calls[0].arguments, arguments);
  }
}

TEST(ToolDialect, qwen3_coder_calls_are_tags_with_values_as_they_stand) {
  const std::string text =
      "I write.\n<tool_call>\n<function=write>\n<parameter=path>\na.py\n</parameter>\n<parameter=text>\n  x = "
      "1\n\n</parameter>\n"
      "</function>\n</tool_call>";
  const auto parsed = parse_tool_calls(ToolDialect::kQwen3Coder, text);
  ASSERT_EQ(parsed.calls.size(), 1u);
  EXPECT_EQ(parsed.content, "I write.");
  EXPECT_EQ(parsed.calls[0].name, "write");
  EXPECT_EQ(parsed.calls[0].arguments, (Json{{"path", "a.py"}, {"text", "  x = 1\n"}}));
  EXPECT_EQ(format_tool_call(ToolDialect::kQwen3Coder, "write", parsed.calls[0].arguments), text.substr(9));
  for (const char* broken : {"<tool_call>", "<tool_call></tool_call>", "<tool_call><function=></function></tool_call>",
                             "<tool_call><function=a>x</function></tool_call>",
                             "<tool_call><function=a><parameter=b></function></tool_call>"}) {
    EXPECT_EQ(parse_tool_calls(ToolDialect::kQwen3Coder, broken).errors.size(), 1u) << broken;
  }
}

TEST(ToolDialect, a_list_of_calls_between_one_pair_of_tags_is_read_call_by_call) {
  const auto parsed =
      hermes(R"(<tool_call>[{"name":"a","arguments":{"x":"</tool_call>"}}, 7, {"name":"b"}]</tool_call> Done.)");
  ASSERT_EQ(parsed.calls.size(), 2u);
  EXPECT_EQ(parsed.calls[0].arguments, (Json{{"x", "</tool_call>"}}));
  EXPECT_EQ(parsed.calls[1].name, "b");
  ASSERT_EQ(parsed.errors.size(), 1u);
  EXPECT_EQ(parsed.errors[0].message.substr(0, 12), "tool call 2:");
  EXPECT_EQ(parsed.content, "Done.");
  EXPECT_EQ(hermes("<tool_call>[]</tool_call>").errors.size(), 1u);
}

TEST(ToolDialect, glm_calls_are_tags_around_keys_and_values) {
  const std::string text =
      "I look.\n<tool_call>grep\n<arg_key>pattern</arg_key>\n<arg_value>a </tool_call>\n b</arg_value>\n"
      "<arg_key>limit</arg_key>\n<arg_value>3</arg_value>\n</tool_call>\n<tool_call>list_dir\n</tool_call>";
  const auto parsed = parse_tool_calls(ToolDialect::kGlm4, text);
  ASSERT_EQ(parsed.calls.size(), 2u);
  EXPECT_EQ(parsed.content, "I look.");
  EXPECT_EQ(parsed.calls[0].name, "grep");
  EXPECT_EQ(parsed.calls[0].arguments, (Json{{"pattern", "a </tool_call>\n b"}, {"limit", "3"}}));
  EXPECT_EQ(parsed.calls[1].name, "list_dir");
  EXPECT_EQ(format_tool_call(ToolDialect::kGlm4, "write", {{"lines", {1, 2}}, {"path", "a"}}),
            "<tool_call>write\n<arg_key>lines</arg_key>\n<arg_value>[1,2]</arg_value>\n<arg_key>path</arg_key>\n"
            "<arg_value>a</arg_value>\n</tool_call>");
  for (const char* broken : {"<tool_call>", "<tool_call></tool_call>", "<tool_call>a<arg_key>b</tool_call>",
                             "<tool_call>a\n<arg_key>b</arg_key></tool_call>", "<tool_call>a\nb</tool_call>",
                             "<tool_call>a<arg_key>b</arg_key><arg_value>1</arg_value><arg_key>b</"
                             "arg_key><arg_value>1</arg_value></tool_call>"}) {
    const auto found = parse_tool_calls(ToolDialect::kGlm4, std::string(broken) + "<tool_call>ok\n</tool_call>");
    EXPECT_EQ(found.errors.size(), 1u) << broken;
    EXPECT_EQ(found.calls.size(), std::string_view(broken).ends_with("</tool_call>") ? 1u : 0u) << broken;
  }
}

TEST(ToolDialect, deepseek_calls_are_read_as_v3_and_as_v31_write_them) {
  const std::string v3 =
      "Looking.<｜tool▁calls▁begin｜><｜tool▁call▁begin｜>function<｜tool▁sep｜>read_file\n```json\n{\"path\": "
      "\"a\"}\n```<｜tool▁call▁end｜>\n<｜tool▁call▁begin｜>function<｜tool▁sep｜>grep\n```json\n{\"n\": "
      "1}\n```<｜tool▁call▁end｜><｜tool▁calls▁end｜>";
  const std::string v31 =
      "Looking.<｜tool▁calls▁begin｜><｜tool▁call▁begin｜>read_file<｜tool▁sep｜>{\"path\": \"a\"}<｜tool▁call▁end｜>"
      "<｜tool▁call▁begin｜>grep<｜tool▁sep｜>{\"n\": 1}<｜tool▁call▁end｜><｜tool▁calls▁end｜>";
  for (const std::string& text : {v3, v31}) {
    const auto parsed = parse_tool_calls(ToolDialect::kDeepseekV3, text);
    ASSERT_EQ(parsed.calls.size(), 2u) << text;
    EXPECT_EQ(parsed.content, "Looking.");
    EXPECT_EQ(parsed.calls[0].name, "read_file");
    EXPECT_EQ(parsed.calls[0].arguments, (Json{{"path", "a"}}));
    EXPECT_EQ(parsed.calls[1].name, "grep");
  }
  for (const char* broken : {"<｜tool▁call▁begin｜>a", "<｜tool▁call▁begin｜>a<｜tool▁call▁end｜>",
                             "<｜tool▁call▁begin｜><｜tool▁sep｜>{}<｜tool▁call▁end｜>",
                             "<｜tool▁call▁begin｜>a<｜tool▁sep｜>[]<｜tool▁call▁end｜>",
                             "<｜tool▁call▁begin｜>function<｜tool▁sep｜>a\n```json\n{}<｜tool▁call▁end｜>"}) {
    EXPECT_EQ(parse_tool_calls(ToolDialect::kDeepseekV31, broken).errors.size(), 1u) << broken;
  }
}

TEST(ToolDialect, kimi_calls_have_ids_with_the_name_in_them) {
  const auto parsed = parse_tool_calls(
      ToolDialect::kKimiK2,
      "Hm.<|tool_calls_section_begin|><|tool_call_begin|>functions.read_file:0<|tool_call_argument_begin|>{\"path\": "
      "\"a:b\"}<|tool_call_end|><|tool_call_begin|>grep:1<|tool_call_argument_begin|>{}<|tool_call_end|>"
      "<|tool_calls_section_end|> So.");
  ASSERT_EQ(parsed.calls.size(), 2u);
  EXPECT_EQ(parsed.content, "Hm.\nSo.");
  EXPECT_EQ(parsed.calls[0].id, "functions.read_file:0");
  EXPECT_EQ(parsed.calls[0].name, "read_file");
  EXPECT_EQ(parsed.calls[0].arguments, (Json{{"path", "a:b"}}));
  EXPECT_EQ(parsed.calls[1].name, "grep");
  for (const char* broken : {"<|tool_call_begin|>functions.:0<|tool_call_argument_begin|>{}<|tool_call_end|>",
                             "<|tool_call_begin|>functions.a:0{}<|tool_call_end|>",
                             "<|tool_call_begin|>a:0<|tool_call_argument_begin|>{<|tool_call_end|>"}) {
    EXPECT_EQ(parse_tool_calls(ToolDialect::kKimiK2, broken).errors.size(), 1u) << broken;
  }
}

TEST(ToolDialect, texts_become_what_the_schemas_say_that_they_are) {
  const Json tools = Json::parse(R"([{"type": "function", "function": {"name": "grep", "parameters": {"type": "object",
      "properties": {"limit": {"type": "integer"}, "deep": {"type": ["boolean", "null"]}, "pattern": {"type": "string"},
      "globs": {"type": "array"}, "other": {}}}}}, 7, {"name": "flat"}])");
  std::vector<ToolCall> calls = {{.name = "grep",
                                  .arguments = {{"limit", "3"},
                                                {"deep", "true"},
                                                {"pattern", "17"},
                                                {"globs", "[\"*.py\"]"},
                                                {"other", "5"},
                                                {"unknown", "6"}}},
                                 {.name = "grep", .arguments = {{"limit", "3.5"}, {"deep", "perhaps"}}},
                                 {.name = "none", .arguments = {{"limit", "3"}}}};
  give_types(tools, calls);
  EXPECT_EQ(
      calls[0].arguments,
      (Json{{"limit", 3}, {"deep", true}, {"pattern", "17"}, {"globs", {"*.py"}}, {"other", "5"}, {"unknown", "6"}}));
  EXPECT_EQ(calls[1].arguments, (Json{{"limit", "3.5"}, {"deep", "perhaps"}})) << "which the tool refuses by name";
  EXPECT_EQ(calls[2].arguments, (Json{{"limit", "3"}}));
}

TEST(ToolDialect, the_template_tells_the_dialect) {
  const auto of = [](const char* name) {
    return dialect_of_template(*read_file(fs::path(TANDEM_SOURCE_DIR) / "tests/golden/chat_templates" / name));
  };
  EXPECT_EQ(of("Qwen-Qwen2.5-7B-Instruct.jinja"), ToolDialect::kHermes);
  EXPECT_EQ(of("Qwen-Qwen3-0.6B.jinja"), ToolDialect::kHermes);
  EXPECT_EQ(of("Qwen3-Coder.jinja"), ToolDialect::kQwen3Coder);
  EXPECT_EQ(dialect_of_template("{% for m in messages %}"), ToolDialect::kHermes);
  for (const auto dialect : kToolDialects) {
    const std::string shown = format_tool_call(dialect, "f", {{"x", "y"}});
    if (dialect == ToolDialect::kLlama3) continue;  // which shows by its tag or by its words, not by a call
    EXPECT_EQ(dialect_of_template("{{ x }}" + shown), dialect) << shown;
  }
}

TEST(ToolDialect, any_text_is_parsed_without_a_crash_and_places_lie_within_it) {
  Random random(4);
  const std::vector<std::string> parts = {"<tool_call>",
                                          "</tool_call>",
                                          "{",
                                          "}",
                                          "\"",
                                          "\\",
                                          "name",
                                          ":",
                                          "arguments",
                                          "x",
                                          " ",
                                          "<|python_tag|>",
                                          ";",
                                          "<function=",
                                          ">",
                                          "</function>",
                                          "<parameter=",
                                          "</parameter>",
                                          "[",
                                          "]",
                                          "\xff",
                                          "<arg_key>",
                                          "</arg_key>",
                                          "<arg_value>",
                                          "</arg_value>",
                                          "<｜tool▁calls▁begin｜>",
                                          "<｜tool▁call▁begin｜>",
                                          "<｜tool▁sep｜>",
                                          "<｜tool▁call▁end｜>",
                                          "<｜tool▁calls▁end｜>",
                                          "function",
                                          "```json",
                                          "```",
                                          "<|tool_call_begin|>",
                                          "<|tool_call_argument_begin|>",
                                          "<|tool_call_end|>",
                                          "<|tool_calls_section_end|>"};
  for (int round = 0; round < 3000; ++round) {
    std::string text;
    for (uint64_t n = random.below(20); n > 0; --n) text += random.pick(parts);
    for (const auto dialect : kToolDialects) {
      const auto parsed = parse_tool_calls(dialect, text);
      for (const auto& error : parsed.errors) EXPECT_LE(error.begin, error.end);
      for (const auto& call : parsed.calls) EXPECT_LE(call.end, text.size());
      EXPECT_EQ(parsed.order.size(), parsed.calls.size() + parsed.errors.size());
    }
  }
}

TEST(ToolDialect, tokens_that_end_messages_are_known_by_dialect) {
  const std::pair<ToolDialect, const char*> cases[] = {
      {ToolDialect::kHermes, "<|im_end|>"},    {ToolDialect::kQwen3Coder, "<|endoftext|>"},
      {ToolDialect::kGlm4, "<|observation|>"}, {ToolDialect::kLlama3, "<|eom_id|>"},
      {ToolDialect::kLlama3, "<|eot_id|>"},    {ToolDialect::kDeepseekV3, "<｜end▁of▁sentence｜>"},
      {ToolDialect::kKimiK2, "<|im_end|>"},    {ToolDialect::kMistral, "</s>"},
      {ToolDialect::kMistralV11, "</s>"},
  };
  for (const auto& [dialect, end] : cases) {
    const std::string call = format_tool_call(dialect, "f", {{"a", end}});
    EXPECT_EQ(without_end_tokens(dialect, call + end), call);
    EXPECT_EQ(without_end_tokens(dialect, call + "\n" + end + " \n"), call + "\n");
    EXPECT_EQ(without_end_tokens(dialect, call + "\n"), call + "\n");
  }
  EXPECT_EQ(without_end_tokens(ToolDialect::kHermes, "a<|im_end|>\n<|endoftext|>"), "a");
  EXPECT_EQ(without_end_tokens(ToolDialect::kHermes, "<s>a</s>"), "<s>a</s>");
  const std::vector<std::string> own = {"", "</s>"};
  EXPECT_EQ(without_end_tokens(ToolDialect::kHermes, "<s>a</s><|im_end|>\n</s>", own), "<s>a");
  EXPECT_EQ(without_end_tokens(ToolDialect::kHermes, "<|im_end|> a"), "<|im_end|> a");
}

}  // namespace
}  // namespace tandem::model
