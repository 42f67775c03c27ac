#include "model/message_format.h"

#include <gtest/gtest.h>

#include "base/random.h"
#include "model/chat_template.h"
#include "tests/repetitions.h"

namespace tandem::model {
namespace {

Json offered_tools() {
  return Json::parse(
      R"([{"type":"function","function":{"name":"read_file","parameters":{"type":"object","properties":{)"
      R"("path":{"type":"string"},"n":{"type":"integer"},"list":{"type":"array"},"t":{"type":"string"}}}}}])");
}

struct HeardMessage {
  std::string reasoning, content;
  std::vector<std::string> names, arguments;  // by number, of those that began
  std::vector<ToolCall> calls;
  std::vector<std::string> errors;
};

// What a listener puts together from pieces that `next` cuts.
template <typename Next>
HeardMessage listen_to_message(const MessageFormat& format, std::string_view text, const Json& tools,
                               ParsedMessage& message, const Next& next) {
  MessageStream stream(format, tools);
  HeardMessage heard;
  const auto take = [&](const MessageStream::Parts& parts) {
    const bool late = !parts.reasoning.empty() && !(heard.content.empty() && heard.names.empty());
    EXPECT_FALSE(late) << "reasoning behind content in " << text;
    heard.reasoning += parts.reasoning;
    for (const auto& event : parts.events) {
      if (event.kind == ToolEvent::kText) heard.content += event.text;
      if (event.kind == ToolEvent::kCallBegun) {
        heard.names.resize(event.number + 1);
        heard.arguments.resize(event.number + 1);
        heard.names[event.number] = event.text;
      }
      if (event.kind == ToolEvent::kArguments) heard.arguments.at(event.number) += event.text;
      if (event.kind == ToolEvent::kCallEnded) {
        EXPECT_EQ(heard.names.at(event.number), event.call.name) << text;
        const auto arguments = parse_json(heard.arguments.at(event.number));
        EXPECT_TRUE(arguments && *arguments == event.call.arguments) << text << ": " << heard.arguments[event.number];
        heard.calls.push_back(event.call);
      }
      if (event.kind == ToolEvent::kError) {
        EXPECT_EQ(event.text, text.substr(event.error.begin, event.error.end - event.error.begin));
        heard.errors.push_back(event.error.message);
      }
    }
  };
  for (size_t at = 0; at < text.size();) {
    const size_t length = std::min(next(), text.size() - at);
    take(stream.push(text.substr(at, length)));
    at += length;
  }
  take(stream.finish());
  message = stream.message();
  return heard;
}

void expect_same_message(const ParsedMessage& whole, const HeardMessage& heard, const ParsedMessage& told,
                         const std::string& text) {
  EXPECT_EQ(heard.reasoning, whole.reasoning) << text;
  EXPECT_EQ(heard.content, whole.content) << text;
  EXPECT_EQ(told.reasoning, whole.reasoning) << text;
  EXPECT_EQ(told.content, whole.content) << text;
  EXPECT_EQ(told.order, whole.order) << text;
  ASSERT_EQ(heard.calls.size(), whole.calls.size()) << text;
  ASSERT_EQ(told.calls.size(), whole.calls.size()) << text;
  for (size_t i = 0; i < whole.calls.size(); ++i) {
    EXPECT_EQ(heard.calls[i].id, whole.calls[i].id) << text;
    EXPECT_EQ(heard.calls[i].arguments, whole.calls[i].arguments) << text;
    EXPECT_EQ(told.calls[i].arguments, whole.calls[i].arguments) << text;
    EXPECT_EQ(heard.calls[i].begin, whole.calls[i].begin) << text;
    EXPECT_EQ(heard.calls[i].end, whole.calls[i].end) << text;
  }
  ASSERT_EQ(heard.errors.size(), whole.errors.size()) << text;
  for (size_t i = 0; i < whole.errors.size(); ++i) EXPECT_EQ(heard.errors[i], whole.errors[i].message) << text;
}

std::string call_of(ToolDialect dialect) {
  return format_tool_call(dialect, "read_file", {{"path", "a\n\"q\" é"}, {"n", 3}, {"list", {1, 2}}, {"t", "5"}});
}

// What begins calls of a dialect, and a call that is only talked about.
std::vector<std::string> drafts_of_calls(ToolDialect dialect) {
  std::vector<std::string> all = {call_of(dialect),        "<tool_call>",         "</tool_call>",
                                  "<|python_tag|>",        "{\"name\": \"x\"",    "<|tool_calls_section_begin|>",
                                  "<｜tool▁call▁begin｜>", "<function=read_file>"};
  const std::string call = call_of(dialect);
  all.push_back(call.substr(0, call.size() / 2));
  // Without its beginning, and without its end.
  for (const size_t cut : {call.size() / 4, call.size() / 2, call.size() - call.size() / 4})
    all.push_back(
        call.substr(call.find_first_of("<[{", cut) == std::string::npos ? cut : call.find_first_of("<[{", cut)));
  all.push_back(call.substr(0, call.find_last_of("<[")));
  for (const char* part : {"[ARGS] {", "<arg_key>path</arg_key>\n<arg_value>x", "\n<parameter=path>\nx\n</parameter>"})
    all.emplace_back(part);
  return all;
}

TEST(ParseMessage, an_end_of_reasoning_within_a_call_is_no_end_of_the_prompts_reasoning) {
  for (const auto dialect : kToolDialects) {
    const std::string call = format_tool_call(dialect, "read_file", {{"path", "a </think> b"}});
    for (const Json& tools : {Json(), offered_tools()}) {
      EXPECT_FALSE(ends_reasoning_of_prompt(dialect, call, tools)) << name_of(dialect);
      // Llama's calls stand at the beginning.
      if (dialect != ToolDialect::kLlama3) {
        EXPECT_FALSE(ends_reasoning_of_prompt(dialect, "Let me. " + call, tools)) << name_of(dialect);
      }
      EXPECT_TRUE(ends_reasoning_of_prompt(dialect, "Hm.</think>" + call, tools)) << name_of(dialect);
      EXPECT_TRUE(ends_reasoning_of_prompt(dialect, "I could call.\n</think>\n\n" + call_of(dialect), tools));
      EXPECT_FALSE(ends_reasoning_of_prompt(dialect, "<think>Hm.</think>" + call, tools));
    }
    EXPECT_TRUE(ends_reasoning_of_prompt(dialect, call, Json::array())) << "nothing is a call";
  }
  EXPECT_TRUE(ends_reasoning_of_prompt(ToolDialect::kHermes,
                                       "I could write <tool_call> here. </think>" + call_of(ToolDialect::kHermes), {}));
}

TEST(ParseMessage, reasoning_that_mentions_a_call_neither_makes_one_nor_hides_one) {
  for (const auto dialect : kToolDialects) {
    const std::string call = call_of(dialect);
    for (const std::string& draft : drafts_of_calls(dialect)) {
      for (const bool inside : {false, true}) {
        const std::string reasoning = "I could write " + draft + " here.";
        const std::string text = (inside ? "" : "<think>\n") + reasoning + "\n</think>\n\n" + call;
        const auto parsed = parse_message({.dialect = dialect, .begins_in_reasoning = inside}, text, offered_tools());
        EXPECT_EQ(parsed.reasoning, reasoning);
        EXPECT_EQ(parsed.content, "");
        EXPECT_TRUE(parsed.errors.empty()) << parsed.errors[0].message;
        ASSERT_EQ(parsed.calls.size(), 1u) << name_of(dialect) << ": " << text;
        EXPECT_EQ(parsed.calls[0].name, "read_file");
        EXPECT_EQ(parsed.calls[0].arguments, (Json{{"path", "a\n\"q\" é"}, {"n", 3}, {"list", {1, 2}}, {"t", "5"}}));
        EXPECT_EQ(parsed.calls[0].begin, text.size() - call.size());
        EXPECT_LE(parsed.calls[0].end, text.size());  // a mark that ends a list follows
      }
      // Nothing is a call that nobody asked for.
      const auto thought = parse_message({.dialect = dialect}, "<think>" + draft + "</think>Done.", offered_tools());
      EXPECT_TRUE(thought.calls.empty() && thought.errors.empty()) << draft;
      EXPECT_EQ(thought.content, "Done.");
      const auto open = parse_message({.dialect = dialect}, "<think>" + draft, offered_tools());
      EXPECT_TRUE(open.calls.empty() && open.errors.empty()) << draft;
    }
  }
}

TEST(ParseMessage, nothing_is_a_call_where_no_tools_were_offered) {
  for (const auto dialect : kToolDialects) {
    const auto parsed = parse_message({.dialect = dialect}, call_of(dialect), Json::array());
    EXPECT_TRUE(parsed.calls.empty());
    EXPECT_EQ(parsed.content, call_of(dialect));
  }
}

TEST(MessageStream, any_pieces_give_what_the_whole_message_gives) {
  Random random(11);
  for (const auto dialect : kToolDialects) {
    std::vector<std::string> texts = {"",
                                      " \n",
                                      "  Only text. ",
                                      "<think>",
                                      "<thin",
                                      "<think></think>",
                                      "</think>x",
                                      " <think>a</think>\n\n",
                                      "<think> a\n\n</think>\n <think>b</think> c"};
    const std::string call = call_of(dialect);
    for (const std::string& draft : drafts_of_calls(dialect)) {
      texts.push_back(draft);
      texts.push_back("<think>\nsay " + draft + " \n</think>\n\nSo:\n" + call + "\n");
      texts.push_back("<think>" + draft + "</think>" + call + call);
      texts.push_back(draft + "</think> " + draft);
      texts.push_back("a " + draft + "\n" + call + " b ");
    }
    for (const std::string& text : texts) {
      for (const Json& tools : {offered_tools(), Json(), Json::array()}) {
        for (const bool inside : {false, true}) {
          const MessageFormat format = {.dialect = dialect, .begins_in_reasoning = inside};
          const auto whole = parse_message(format, text, tools);
          ParsedMessage told;
          expect_same_message(whole, listen_to_message(format, text, tools, told, [] { return size_t{1}; }), told,
                              text);
          for (int i = 0; i < repetitions(2, 100); ++i)
            expect_same_message(
                whole, listen_to_message(format, text, tools, told, [&] { return 1 + random.below(12); }), told, text);
        }
      }
    }
  }
}

TEST(MessageFormat, is_told_by_the_template_and_its_prompt) {
  const auto qwen = *ChatTemplate::parse(
      "{% if tools %}<tool_call>{% endif %}{% if add_generation_prompt %}<think>\n{% endif %}{# </think> #}");
  const auto format = message_format(qwen, true, "<|im_start|>assistant\n<think>\n");
  EXPECT_EQ(format.dialect, ToolDialect::kHermes);
  EXPECT_TRUE(format.reads_tools && format.has_reasoning && format.begins_in_reasoning);
  EXPECT_FALSE(message_format(qwen, true, "<think>\n\n</think>\n\n").begins_in_reasoning);
  const auto plain = message_format(*ChatTemplate::parse("{{ messages[0].content }}"), false, "x");
  EXPECT_FALSE(plain.reads_tools || plain.has_reasoning || plain.begins_in_reasoning);
}

TEST(ReasoningSplitter, takes_the_marks_of_mistral_too_each_with_its_own_end) {
  const auto parts = ReasoningSplitter(false).push("[THINK]a [TOOL_CALLS] </think> b[/THINK] c", true);
  EXPECT_EQ(parts.reasoning, "a [TOOL_CALLS] </think> b");
  EXPECT_EQ(parts.content, "c");
  ReasoningSplitter stream(false);
  EXPECT_EQ(stream.push(" [TH", false).content, "");
  EXPECT_EQ(stream.push("INK]x", false).reasoning, "x");
  EXPECT_EQ(stream.push("[/THINK]y", true).content, "y");
  EXPECT_EQ(ReasoningSplitter(false).push("[THING]", true).content, "[THING]");
}

TEST(ReasoningSplitter, says_the_same_in_whatever_pieces_the_text_comes) {
  const std::string text = "  <think> a < b </thin \n k </think>\n the answer </think> ";
  ReasoningSplitter whole(false);
  const auto expected = whole.push(text, true);
  EXPECT_EQ(expected.reasoning, "a < b </thin \n k");
  EXPECT_EQ(expected.content, "the answer </think> ");
  Random random(1);
  for (int round = 0; round < 200; ++round) {
    ReasoningSplitter splitter(false);
    ReasoningSplitter::Parts all;
    for (size_t at = 0; at < text.size();) {
      const size_t count = std::min<size_t>(1 + random.below(6), text.size() - at);
      const auto parts = splitter.push(text.substr(at, count), at + count == text.size());
      all.reasoning += parts.reasoning;
      all.content += parts.content;
      at += count;
    }
    EXPECT_EQ(all.reasoning, expected.reasoning);
    EXPECT_EQ(all.content, expected.content);
  }
}

TEST(ParseMessage, reasoning_wherever_it_stands_makes_no_call) {
  Random random(11);
  for (const auto dialect : kToolDialects) {
    const std::string call = call_of(dialect);
    for (const std::string& draft : drafts_of_calls(dialect)) {
      for (const auto& marks : kReasoningMarks) {
        const auto block = [&](std::string_view text) {
          return std::string(marks.begin) + std::string(text) + std::string(marks.end);
        };
        const MessageFormat format{.dialect = dialect};
        // Blocks that follow each other are one.
        const std::string twice = block("a") + " \n" + block("b " + draft) + call;
        const auto parsed = parse_message(format, twice, offered_tools());
        EXPECT_EQ(parsed.reasoning, "a\nb " + draft.substr(0, draft.find_last_not_of(" \n") + 1)) << twice;
        EXPECT_EQ(parsed.calls.size(), 1u) << twice;
        EXPECT_TRUE(parsed.errors.empty()) << twice;
        // One behind content is content.
        const std::string late = "Let me. " + block(draft) + "done";
        const auto said = parse_message(format, late, offered_tools());
        EXPECT_EQ(said.content, late) << name_of(dialect);
        EXPECT_TRUE(said.calls.empty() && said.errors.empty()) << late;
        for (const std::string& text : {twice, late, late + "\n" + call, call + late}) {
          ParsedMessage told;
          const auto heard =
              listen_to_message(format, text, offered_tools(), told, [&] { return 1 + random.below(7); });
          expect_same_message(parse_message(format, text, offered_tools()), heard, told, text);
        }
      }
    }
    // A mark in an argument is the argument's, and one without its end hides no call.
    const std::string path = "<think>x</think>";
    const auto kept =
        parse_message({.dialect = dialect}, format_tool_call(dialect, "read_file", {{"path", path}}), offered_tools());
    ASSERT_EQ(kept.calls.size(), 1u) << name_of(dialect);
    EXPECT_EQ(kept.calls[0].arguments["path"], path);
    if (dialect != ToolDialect::kLlama3) {
      EXPECT_EQ(parse_message({.dialect = dialect}, "The <think> tag. " + call, offered_tools()).calls.size(), 1u);
    }
  }
}

}  // namespace
}  // namespace tandem::model
