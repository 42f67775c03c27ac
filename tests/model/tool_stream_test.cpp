#include "model/tool_stream.h"

#include <gtest/gtest.h>

#include "base/random.h"
#include "tests/repetitions.h"

namespace tandem::model {
namespace {

struct Heard {
  std::string content;
  std::vector<std::string> names, arguments;  // by number, of those that began
  std::vector<ToolCall> calls;
  std::vector<std::string> errors;
};

// What a listener puts together from `text` in pieces that `next` cuts.
template <typename Next>
Heard listen(ToolDialect dialect, std::string_view text, ParsedMessage& message, const Next& next) {
  ToolStream stream(dialect);
  Heard heard;
  const auto take = [&](const std::vector<ToolEvent>& events) {
    for (const auto& event : events) {
      if (event.kind == ToolEvent::kText) heard.content += event.text;
      if (event.kind == ToolEvent::kCallBegun) {
        heard.names.resize(event.number + 1);
        heard.arguments.resize(event.number + 1);
        EXPECT_TRUE(heard.names[event.number].empty()) << "begun twice in " << text;
        heard.names[event.number] = event.text;
      }
      if (event.kind == ToolEvent::kArguments) heard.arguments.at(event.number) += event.text;
      if (event.kind == ToolEvent::kCallEnded) {
        EXPECT_EQ(heard.names.at(event.number), event.call.name) << text;
        EXPECT_EQ(heard.arguments.at(event.number).empty(), false);
        const auto arguments = parse_json(heard.arguments[event.number]);
        EXPECT_TRUE(arguments) << text << ": " << heard.arguments[event.number];
        // An object that was written as a string is told as the object.
        EXPECT_TRUE(!arguments || dump_json(*arguments) == dump_json(event.call.arguments)) << text;
        heard.calls.push_back(event.call);
      }
      if (event.kind == ToolEvent::kError) heard.errors.push_back(event.error.message);
    }
  };
  while (!text.empty()) {
    const size_t length = std::min(next(), text.size());
    take(stream.push(text.substr(0, length)));
    text.remove_prefix(length);
  }
  take(stream.finish());
  message = stream.message();
  return heard;
}

void expect_same(ToolDialect dialect, const std::string& text, const Heard& heard) {
  const auto whole = parse_tool_calls(dialect, text);
  const size_t first = whole.content.find_first_not_of(" \t\r\n");
  EXPECT_EQ(heard.content, first == std::string::npos ? "" : whole.content.substr(first))
      << name_of(dialect) << ": " << text;
  ASSERT_EQ(heard.calls.size(), whole.calls.size()) << name_of(dialect) << ": " << text;
  for (size_t i = 0; i < whole.calls.size(); ++i) {
    EXPECT_EQ(heard.calls[i].id, whole.calls[i].id);
    EXPECT_EQ(heard.calls[i].arguments, whole.calls[i].arguments);
    EXPECT_EQ(heard.calls[i].end, whole.calls[i].end) << name_of(dialect) << ": " << text;
  }
  ASSERT_EQ(heard.errors.size(), whole.errors.size()) << name_of(dialect) << ": " << text;
  for (size_t i = 0; i < whole.errors.size(); ++i) EXPECT_EQ(heard.errors[i], whole.errors[i].message) << text;
}

std::vector<std::string> texts(ToolDialect dialect) {
  const Json arguments = {
      {"path", "a\nb \"q\" \\ é 中"}, {"n", 3}, {"list", {1, {{"x", nullptr}}}}, {"t", "</tool_call>"}};
  const std::string one = format_tool_call(dialect, "read_file", arguments);
  const std::string two = format_tool_call(dialect, "stop", Json::object());
  std::vector<std::string> texts = {
      "", "  ", " Plain text, <b> and { \"a\": 1 }.\n ", one, two, "  Let me look.\n\n" + one, one + "\n" + two,
      "A " + one + " B " + two + " C \n", one + "; " + two, one.substr(0, one.size() / 2),
      one.substr(0, one.size() - 3), one + two.substr(0, two.size() / 2), "x<tool_cal" + two,
      "x <｜tool▁calls▁begin｜> y",
      "<tool_call>[{\"name\": \"a\", \"arguments\": {}}, {\"name\": \"b\"}]</tool_call> end",
      "<tool_call>{\"name\": \"a\", \"arguments\": {\"x\":}}</tool_call> then " + two,
      "<tool_call>{\"arguments\": {\"x\": 1}, \"name\": \"late\"}</tool_call>",
      "<tool_call>{\"name\": \"s\", \"arguments\": \"{\\\"b\\\": 1}\"}</tool_call>",
      "<tool_call>nothing</tool_call>" + one, "<tool_call>{\"name\":\"a\"} x </tool_call>y",
      "{\"name\": \"a\", \"parameters\": {\"x\": \"<|python_tag|>\"}} {\"name\": 1} z",
      "say <|python_tag|>{\"name\": \"a\", \"parameters\": {}};",
      "<|python_tag|>search.call(query=\"a (b)\", n=[1, {'k': None}])",
      "x <|python_tag|> a.call(); {\"name\": \"b\"}; c.call(x='\\u00e9') \n", "<|python_tag|>a.call(x=1) y",
      "<|python_tag|>a.call(x=", "<|python_tag|>a.cal", "<|python_tag|>\nx = \"\\n\"\n\nprint(x, 'é 中')  \n",
      "{\"name\": \"a\"} <|python_tag|><|python_tag|>1", "{\"name\": \"a\"}; <|python",
      "<tool_call><function=f><parameter=a>\n\n1\n\n</parameter><parameter=a>2</parameter>"
      "</function></tool_call>",
      // What looks like the beginning of another parameter, but not at the beginning of a line.
      "<tool_call><function=f><parameter=x>\n3\n</para<parameter=z>\n</tool_call>\n</parameter></function></tool_call>",
      "<tool_call><function=f><parameter=x>\n3\n<parameter=z>\n4</parameter></function></tool_call>",
      "<tool_call><function=f><parameter=x><parameter=z>4</parameter></function></tool_call>",
      "<tool_call>f<arg_key>a</arg_key><arg_value></tool_call></arg_value></tool_call>",
      "<tool_call>f<arg_key>a</arg_key>b</tool_call>" + one};
  // Two lists, each closed.
  texts.push_back(one + " between " + one);
  return texts;
}

TEST(ToolStream, any_cut_gives_what_the_whole_text_gives) {
  Random random(6);
  for (const auto dialect : kToolDialects) {
    for (const auto writer : kToolDialects) {
      for (const std::string& text : texts(writer)) {
        ParsedMessage message;
        expect_same(dialect, text, listen(dialect, text, message, [] { return size_t{1}; }));
        expect_same(dialect, text, listen(dialect, text, message, [] { return size_t{1} << 30; }));
        EXPECT_EQ(message.content, parse_tool_calls(dialect, text).content);
        for (int i = 0; i < repetitions(5, 200); ++i)
          expect_same(dialect, text, listen(dialect, text, message, [&] { return 1 + random.below(12); }));
      }
    }
  }
}

TEST(ToolStream, arguments_come_while_they_are_written) {
  for (const auto dialect : kToolDialects) {
    // Calls of Llama are the whole message.
    const std::string before = dialect == ToolDialect::kLlama3 ? "" : "Text ";
    const std::string text =
        before + format_tool_call(dialect, "write", {{"path", "a.txt"}, {"text", std::string(200, 'x')}});
    ToolStream stream(dialect);
    std::string told;
    size_t begun_at = 0;
    for (size_t i = 0; i < text.size(); ++i) {
      for (const auto& event : stream.push(text.substr(i, 1))) {
        if (event.kind == ToolEvent::kCallBegun) begun_at = i;
        if (event.kind == ToolEvent::kText) {
          EXPECT_NE(before.find(event.text), std::string::npos) << event.text;
        }
        if (event.kind == ToolEvent::kArguments) told += event.text;
      }
      if (i != text.size() - 80) continue;
      EXPECT_GT(begun_at, 0u) << name_of(dialect);
      EXPECT_NE(told.find("a.txt"), std::string::npos) << name_of(dialect);
      EXPECT_NE(told.find(std::string(90, 'x')), std::string::npos) << name_of(dialect) << " " << told;
    }
  }
}

TEST(ToolStream, code_comes_while_it_is_written) {
  ToolStream stream(ToolDialect::kLlama3);
  std::string told;
  for (const char* piece : {"<|python", "_tag|>im", "port os\n", "print(\"é", "\")"}) {
    for (const auto& event : stream.push(piece)) {
      if (event.kind == ToolEvent::kCallBegun) {
        EXPECT_EQ(event.text, "code_interpreter");
      }
      if (event.kind == ToolEvent::kArguments) told += event.text;
    }
  }
  EXPECT_EQ(told, R"({"code":"import os\nprint(\"é\"))");
}

}  // namespace
}  // namespace tandem::model
