#include "serve/choice.h"

#include <gtest/gtest.h>

#include <cmath>
#include <deque>

namespace tandem::serve {
namespace {

// One token a byte, and an end token.
model::Tokenizer byte_tokenizer() {
  Json vocabulary = Json::object();
  int id = 0;
  for (int c = 33; c < 127; ++c) vocabulary[std::string(1, static_cast<char>(c))] = id++;
  vocabulary["Ġ"] = id++;
  vocabulary["Ċ"] = id++;
  const Json file = {{"version", "1.0"},
                     {"added_tokens", Json::array({{{"id", id},
                                                    {"content", "<end>"},
                                                    {"single_word", false},
                                                    {"lstrip", false},
                                                    {"rstrip", false},
                                                    {"normalized", false},
                                                    {"special", true}}})},
                     {"normalizer", nullptr},
                     {"pre_tokenizer", {{"type", "ByteLevel"}, {"add_prefix_space", false}, {"use_regex", false}}},
                     {"post_processor", nullptr},
                     {"decoder", {{"type", "ByteLevel"}}},
                     {"model", {{"type", "BPE"}, {"vocab", vocabulary}, {"merges", Json::array()}}}};
  auto tokenizer = model::Tokenizer::from_json(dump_json(file));
  EXPECT_TRUE(tokenizer) << tokenizer.error().to_string();
  return std::move(*tokenizer);
}

const model::MessageFormat kHermes = {.dialect = model::ToolDialect::kHermes};

struct Told {
  std::string text, reasoning;
  std::vector<CallPiece> calls;
  std::optional<Finish> finish;
  size_t used = 0;  // tokens
};

// What the pieces say together. `end`: how the engine ends the turn behind the text.
Told tell(Choice& choice, const model::Tokenizer& tokenizer, const std::string& text, rollout::TurnEnd end) {
  const auto ids = *tokenizer.encode(text);
  Told told;
  for (size_t i = 0; i <= ids.size() && !choice.ended(); ++i) {
    rollout::SampledToken token;
    const bool stop = end == rollout::TurnEnd::kStop;
    if (i == ids.size() && !stop) break;
    token.token = i < ids.size() ? ids[i] : *tokenizer.find("<end>");
    token.turn_ended = stop ? i == ids.size() : i + 1 == ids.size();
    token.end = end;
    const auto piece = choice.take(token);
    EXPECT_TRUE(piece);
    told.text += piece->text;
    told.reasoning += piece->reasoning;
    for (const auto& call : piece->calls) {
      if (call.index == told.calls.size()) told.calls.push_back({call.index, call.id, call.name, ""});
      told.calls.at(call.index).arguments += call.arguments;
    }
    told.finish = piece->finish;
    ++told.used;
  }
  EXPECT_EQ(told.text, choice.text());
  EXPECT_EQ(told.reasoning, choice.reasoning());
  EXPECT_EQ(told.finish, choice.ended() ? std::optional(choice.finish()) : std::nullopt);
  return told;
}

Told tell(const ChoiceSettings& settings, const std::string& text, rollout::TurnEnd end = rollout::TurnEnd::kStop) {
  const auto tokenizer = byte_tokenizer();
  auto shared = std::make_shared<ChoiceSettings>(settings);
  shared->most_tokens = 1000;
  Choice choice(&tokenizer, shared, "call_");
  return tell(choice, tokenizer, text, end);
}

TEST(Choice, a_token_whose_logprob_is_nan_is_an_error) {
  const auto tokenizer = byte_tokenizer();
  auto settings = std::make_shared<ChoiceSettings>();
  settings->most_tokens = 1000;
  Choice choice(&tokenizer, settings, "call_");
  const auto taken = choice.take({.token = 1, .logprob = std::nanf("")});
  ASSERT_FALSE(taken);
  EXPECT_EQ(taken.error().code(), Code::kCorrupt);
  EXPECT_NE(taken.error().message().find("NaN"), std::string::npos);
}

TEST(Choice, ends_before_the_first_stop_text_and_tells_no_part_of_it) {
  const auto told = tell({.stops = {"END", "stop"}}, "one two stEN stop and more END");
  EXPECT_EQ(told.text, "one two stEN ");
  EXPECT_EQ(told.finish, Finish::kStop);
  EXPECT_EQ(told.used, std::string("one two stEN stop").size());
  EXPECT_EQ(tell({.stops = {"END"}, .include_stop = true}, "a END b").text, "a END");
  // What looked like the beginning of one is told once it is none.
  EXPECT_EQ(tell({.stops = {"END"}}, "the EN").text, "the EN");
}

TEST(Choice, a_turn_that_was_cut_has_finish_length_whatever_it_held) {
  EXPECT_EQ(tell({}, "half", rollout::TurnEnd::kLength).finish, Finish::kLength);
  const std::string call = "<tool_call>\n{\"name\": \"f\", \"arguments\": {\"a\": 1}}\n</tool_call>";
  EXPECT_EQ(tell({.format = kHermes, .tools = Json()}, call).finish, Finish::kToolCalls);
  EXPECT_EQ(tell({.format = kHermes, .tools = Json()}, call, rollout::TurnEnd::kLength).finish, Finish::kLength);
  EXPECT_EQ(tell({.format = kHermes, .tools = Json()}, call.substr(0, 40)).finish, Finish::kStop);
}

TEST(Choice, tells_text_and_calls_apart_with_arguments_that_are_json) {
  const auto told = tell({.format = kHermes, .tools = Json()},
                         "Let me look.\n<tool_call>\n{\"name\": \"f\", \"arguments\": {\"a\": \"x y\"}}\n</tool_call>\n"
                         "<tool_call>\n{\"name\": \"g\", \"arguments\": {}}\n</tool_call>");
  EXPECT_EQ(told.text, "Let me look.");
  ASSERT_EQ(told.calls.size(), 2u);
  EXPECT_EQ(told.calls[0].name, "f");
  EXPECT_EQ(parse_json(told.calls[0].arguments), (Json{{"a", "x y"}}));
  EXPECT_EQ(told.calls[1].name, "g");
  EXPECT_EQ(parse_json(told.calls[1].arguments), Json::object());
  EXPECT_NE(told.calls[0].id, told.calls[1].id);
}

TEST(Choice, values_of_a_dialect_of_texts_have_the_types_of_the_schema) {
  const Json tools = Json::array(
      {{{"type", "function"},
        {"function",
         {{"name", "f"}, {"parameters", {{"type", "object"}, {"properties", {{"n", {{"type", "integer"}}}}}}}}}}});
  const auto told = tell({.format = model::MessageFormat{.dialect = model::ToolDialect::kQwen3Coder}, .tools = tools},
                         "<tool_call>\n<function=f>\n<parameter=n>\n3\n</parameter>\n</function>\n</tool_call>");
  ASSERT_EQ(told.calls.size(), 1u);
  EXPECT_EQ(parse_json(told.calls[0].arguments), (Json{{"n", 3}}));
}

TEST(Choice, one_call_ends_the_answer_where_calls_may_not_be_parallel) {
  const std::string call = "<tool_call>\n{\"name\": \"f\", \"arguments\": {}}\n</tool_call>";
  const auto told = tell({.format = kHermes, .tools = Json(), .one_call = true}, call + "\n" + call);
  EXPECT_EQ(told.calls.size(), 1u);
  EXPECT_EQ(told.finish, Finish::kToolCalls);
}

TEST(Choice, what_is_no_call_after_all_stays_text) {
  const std::string text = "<tool_call>\nnot json\n</tool_call>";
  EXPECT_EQ(tell({.format = kHermes, .tools = Json()}, text).text, text);
}

TEST(Choice, keeps_reasoning_apart_wherever_it_begins) {
  auto told = tell({.format = kHermes}, "<think>\nhm, two\n</think>\n\nTwo.");
  EXPECT_EQ(told.reasoning, "hm, two");
  EXPECT_EQ(told.text, "Two.");
  told = tell({.format = model::MessageFormat{.begins_in_reasoning = true}}, "hm</think>Two.");
  EXPECT_EQ(told.reasoning, "hm");
  EXPECT_EQ(told.text, "Two.");
  told = tell({.format = kHermes}, "<thin air");
  EXPECT_EQ(told.reasoning, "");
  EXPECT_EQ(told.text, "<thin air");
  told = tell({.format = kHermes}, "<think>cut off", rollout::TurnEnd::kLength);
  EXPECT_EQ(told.reasoning, "cut off");
  told = tell({.format = kHermes}, "<think></think>Yes");
  EXPECT_EQ(told.reasoning, "");
  EXPECT_EQ(told.text, "Yes");
  EXPECT_EQ(tell({}, "<think>x</think>").text, "<think>x</think>");
}

}  // namespace
}  // namespace tandem::serve
