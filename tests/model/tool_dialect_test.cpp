#include "model/tool_dialect.h"

#include <gtest/gtest.h>

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
  EXPECT_EQ(parse_tool_calls(ToolDialect::kLlama3, "{\"name\": \"a\"").errors.size(), 1u);
}

TEST(ToolDialect, what_is_formatted_is_parsed_back) {
  const Json arguments = {{"text", "a\n\"b\" </tool_call> é"}, {"n", nullptr}, {"l", {1, 2.5, true}}};
  for (const auto dialect : {ToolDialect::kHermes, ToolDialect::kLlama3}) {
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

TEST(ToolDialect, the_template_tells_the_dialect) {
  const auto of = [](const char* name) {
    return dialect_of_template(*read_file(fs::path(TANDEM_SOURCE_DIR) / "tests/golden/chat_templates" / name));
  };
  EXPECT_EQ(of("Qwen-Qwen2.5-7B-Instruct.jinja"), ToolDialect::kHermes);
  EXPECT_EQ(of("Qwen-Qwen3-0.6B.jinja"), ToolDialect::kHermes);
  EXPECT_EQ(of("Qwen3-Coder.jinja"), ToolDialect::kQwen3Coder);
  EXPECT_EQ(dialect_of_template("{% for m in messages %}"), ToolDialect::kHermes);
}

TEST(ToolDialect, any_text_is_parsed_without_a_crash_and_places_lie_within_it) {
  Random random(4);
  const std::vector<std::string> parts = {"<tool_call>", "</tool_call>",
                                          "{",           "}",
                                          "\"",          "\\",
                                          "name",        ":",
                                          "arguments",   "x",
                                          " ",           "<|python_tag|>",
                                          ";",           "<function=",
                                          ">",           "</function>",
                                          "<parameter=", "</parameter>",
                                          "[",           "]",
                                          "\xff"};
  for (int round = 0; round < 3000; ++round) {
    std::string text;
    for (uint64_t n = random.below(20); n > 0; --n) text += random.pick(parts);
    for (const auto dialect : {ToolDialect::kHermes, ToolDialect::kQwen3Coder, ToolDialect::kLlama3}) {
      const auto parsed = parse_tool_calls(dialect, text);
      for (const auto& error : parsed.errors) EXPECT_LE(error.begin, error.end);
      for (const auto& call : parsed.calls) EXPECT_LE(call.end, text.size());
      EXPECT_EQ(parsed.order.size(), parsed.calls.size() + parsed.errors.size());
    }
  }
}

}  // namespace
}  // namespace tandem::model
