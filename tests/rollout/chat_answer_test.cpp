// What servers answer, streamed or whole, right or not.
#include "rollout/agent/chat_answer.h"

#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "base/random.h"
#include "rollout/agent/endpoint_model.h"
#include "rollout/agent/spoken_text.h"

namespace tandem::rollout {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;
using testing::StartsWith;

Result<ChatAnswer> read_stream(const std::vector<std::string>& events) {
  ChatAnswerReader reader;
  for (const auto& event : events) {
    if (Status status = reader.take(event); !status.ok()) return fail(std::move(status));
  }
  return std::move(reader).finish();
}
std::string delta(const Json& of, const Json& reason = nullptr) {
  return dump_json(Json{{"model", "m"}, {"choices", {{{"index", 0}, {"delta", of}, {"finish_reason", reason}}}}});
}
std::string part(const Json& index, const Json& id, const Json& name, const Json& arguments) {
  Json call = {{"function", Json::object()}};
  if (!index.is_null()) call["index"] = index;
  if (!id.is_null()) call["id"] = id;
  if (!name.is_null()) call["function"]["name"] = name;
  if (!arguments.is_null()) call["function"]["arguments"] = arguments;
  return delta({{"tool_calls", {call}}});
}

TEST(ChatAnswer, a_stream_is_put_together_text_calls_and_use) {
  const auto answer = read_stream(
      {delta({{"role", "assistant"}, {"content", "Let me "}}), delta({{"content", "look."}}),
       part(0, "c1", "read_file", ""), part(1, "c2", "grep", "{\"pat"), part(0, nullptr, nullptr, "{}"),
       part(1, nullptr, nullptr, "tern\":\"x\"}"), delta(Json::object(), "tool_calls"),
       R"({"choices":[],"usage":{"prompt_tokens":7,"completion_tokens":3,"prompt_tokens_details":{"cached_tokens":5}}})",
       "[DONE]"});
  ASSERT_TRUE(answer) << answer.error().message();
  EXPECT_EQ(answer->content, "Let me look.");
  ASSERT_EQ(answer->calls.size(), 2u);
  EXPECT_EQ(answer->calls[0].arguments, "{}");
  EXPECT_EQ(answer->calls[1].name, "grep");
  EXPECT_EQ(answer->calls[1].arguments, R"({"pattern":"x"})");
  EXPECT_EQ(answer->use.prompt, 7u);
  EXPECT_EQ(answer->use.cached, 5u);
  EXPECT_EQ(answer->use.completion, 3u);
  EXPECT_EQ(answer->model, "m");
}

TEST(ChatAnswer, whole_calls_of_one_index_are_told_apart_without_ids) {
  const auto answer =
      read_stream({part(0, "", "read_file", R"({"target_file":"a"})"),
                   part(0, "", "read_file", R"({"target_file":"b"})"), part(0, nullptr, "grep", "{\"pat"),
                   part(0, nullptr, "grep", "tern\":\"x\"}"), delta(Json::object(), "tool_calls")});
  ASSERT_TRUE(answer) << answer.error().message();
  ASSERT_EQ(answer->calls.size(), 3u);
  EXPECT_EQ(answer->calls[1].arguments, R"({"target_file":"b"})");
  EXPECT_EQ(answer->calls[2].arguments, R"({"pattern":"x"})") << "a name that is said with each piece";
}

TEST(ChatAnswer, indexes_may_begin_anywhere) {
  const auto answer = read_stream({part(1, "c1", "read_file", "{"), part(3, "c2", "grep", "{}"),
                                   part(1, nullptr, nullptr, "}"), delta(Json::object(), "tool_calls")});
  ASSERT_TRUE(answer) << answer.error().message();
  ASSERT_EQ(answer->calls.size(), 2u);
  EXPECT_EQ(answer->calls[0].name, "read_file");
  EXPECT_EQ(answer->calls[0].arguments, "{}");
  EXPECT_EQ(answer->calls[1].name, "grep");
}

TEST(ChatAnswer, calls_without_an_index_are_told_apart_by_their_ids) {
  const auto answer =
      read_stream({part(nullptr, "c1", "read_file", Json{{"target_file", "a"}}), part(nullptr, "c2", "grep", "{"),
                   part(nullptr, nullptr, nullptr, "}"), delta(Json::object(), "tool_calls")});
  ASSERT_TRUE(answer);
  ASSERT_EQ(answer->calls.size(), 2u);
  EXPECT_EQ(answer->calls[0].arguments, R"({"target_file":"a"})");
  EXPECT_EQ(answer->calls[1].arguments, "{}");
}

TEST(ChatAnswer, calls_of_one_index_are_told_apart_by_their_ids_where_the_first_is_whole) {
  const auto answer = read_stream({part(0, "a1", "read_file", R"({"target_file":"a"})"), part(0, "a2", "grep", "{\"p"),
                                   part(0, nullptr, nullptr, "\":1}"), part(1, "a3", "glob", "{}"),
                                   delta(Json::object(), "tool_calls")});
  ASSERT_TRUE(answer) << answer.error().message();
  ASSERT_EQ(answer->calls.size(), 3u);
  EXPECT_EQ(answer->calls[0].arguments, R"({"target_file":"a"})");
  EXPECT_EQ(answer->calls[1].name, "grep");
  EXPECT_EQ(answer->calls[1].arguments, R"({"p":1})");
  EXPECT_EQ(answer->calls[2].name, "glob");
  // A server that names each piece anew: the first is not whole, so all are one call.
  const auto renamed =
      read_stream({part(0, "x1", "grep", "{\"a"), part(0, "x2", "grep", "\":1}"), delta(Json::object(), "tool_calls")});
  ASSERT_TRUE(renamed);
  ASSERT_EQ(renamed->calls.size(), 1u);
  EXPECT_EQ(renamed->calls[0].arguments, R"({"a":1})");
}

TEST(ChatAnswer, fields_of_the_server_alone_go_back_as_they_came) {
  const Json signature = {{"google", {{"thought_signature", "c2ln"}}}};
  Json call = {{"index", 0}, {"id", "c1"}, {"type", "function"}, {"extra_content", signature}};
  call["function"] = {{"name", "grep"}, {"arguments", "{}"}};
  const auto answer = read_stream({delta({{"role", "assistant"}, {"content", nullptr}, {"reasoning_content", "Let "}}),
                                   delta({{"reasoning_content", "me."}, {"details", {1}}}),
                                   delta({{"tool_calls", {call}}, {"details", {2}}, {"refusal", nullptr}}),
                                   delta(Json::object(), "tool_calls")});
  ASSERT_TRUE(answer) << answer.error().message();
  AgentTurn turn;
  put_calls(*answer, 1, turn);
  const Json message = message_of(*answer, turn);
  EXPECT_EQ(message["reasoning_content"], "Let me.");
  EXPECT_EQ(message["details"], Json({1, 2}));
  EXPECT_EQ(message["tool_calls"][0]["extra_content"], signature);
  EXPECT_FALSE(message.contains("refusal"));
  call.erase("index");
  const Json whole = {
      {"choices",
       {{{"finish_reason", "tool_calls"},
         {"message", {{"role", "assistant"}, {"reasoning_content", "Let me."}, {"tool_calls", {call}}}}}}}};
  const auto read = read_chat_answer(dump_json(whole));
  ASSERT_TRUE(read) << read.error().message();
  EXPECT_EQ(read->others["reasoning_content"], "Let me.");
  EXPECT_EQ(read->calls.at(0).others["extra_content"], signature);
}

TEST(ChatAnswer, the_one_call_of_the_old_notation_is_a_call) {
  const auto piece = [](const Json& of) { return delta({{"function_call", of}}); };
  const auto streamed = read_stream({piece({{"name", "grep"}, {"arguments", ""}}), piece({{"arguments", "{\"pat"}}),
                                     piece({{"arguments", "tern\":\"x\"}"}}), delta(Json::object(), "function_call")});
  const auto whole = read_chat_answer(
      R"({"choices":[{"finish_reason":"function_call","message":{"content":null,"tool_calls":[],
          "function_call":{"name":"grep","arguments":"{\"pattern\":\"x\"}"}}}]})");
  for (const auto* answer : {&streamed, &whole}) {
    ASSERT_TRUE(*answer) << answer->error().message();
    ASSERT_EQ((*answer)->calls.size(), 1u);
    EXPECT_EQ((*answer)->calls[0].name, "grep");
    EXPECT_EQ((*answer)->calls[0].arguments, R"({"pattern":"x"})");
  }
}

TEST(ChatAnswer, thinking_parts_of_a_content_go_back_as_they_came) {
  const auto thinking = [](const char* text) {
    return Json{{"type", "thinking"}, {"thinking", Json::array({Json{{"type", "text"}, {"text", text}}})}};
  };
  const auto parts = [](const std::vector<Json>& of) { return Json(of); };
  const Json text = {{"type", "text"}, {"text", "It is 4."}};
  const auto whole = read_chat_answer(dump_json(
      Json{{"choices",
            {{{"finish_reason", "stop"}, {"message", {{"content", parts({thinking("Two and two."), text})}}}}}}}));
  const auto streamed =
      read_stream({delta({{"content", parts({thinking("Two ")})}}), delta({{"content", parts({thinking("and two.")})}}),
                   delta({{"content", "It "}}), delta({{"content", "is 4."}}), delta(Json::object(), "stop")});
  for (const auto* answer : {&whole, &streamed}) {
    ASSERT_TRUE(*answer) << answer->error().message();
    EXPECT_EQ((*answer)->content, "It is 4.");
    EXPECT_EQ((*answer)->reasoning, "Two and two.");
    EXPECT_EQ(message_of(**answer, {})["content"], parts({thinking("Two and two."), text}));
  }
  const auto plain = read_stream({delta({{"content", parts({text})}}), delta(Json::object(), "stop")});
  ASSERT_TRUE(plain);
  EXPECT_EQ(message_of(*plain, {})["content"], "It is 4.") << "where a text says the same";
}

TEST(ChatAnswer, a_part_of_thinking_ends_with_what_it_has_beside_it) {
  const auto piece = [](const Json& part) { return delta({{"content", Json::array({part})}}); };
  const auto answer = read_stream({piece({{"type", "thinking"}, {"thinking", "a"}}),
                                   piece({{"type", "thinking"}, {"thinking", "b"}, {"signature", "s"}}),
                                   piece({{"type", "thinking"}, {"thinking", "c"}}), delta(Json::object(), "stop")});
  ASSERT_TRUE(answer) << answer.error().message();
  EXPECT_EQ(answer->reasoning, "abc");
  const Json content = message_of(*answer, {})["content"];
  ASSERT_EQ(content.size(), 2u) << content;
  EXPECT_EQ(content[0]["thinking"], "ab");
  EXPECT_EQ(content[0]["signature"], "s");
}

TEST(ChatAnswer, characters_that_are_cut_by_the_end_of_an_event_are_put_together) {
  const auto event = [](const char* content) {
    return fmt::format(R"({{"choices":[{{"index":0,"delta":{{"content":"{}"}}}}]}})", content);
  };
  ChatAnswerReader reader;
  ASSERT_TRUE(reader.take(event(R"(a\ud83c)")));
  EXPECT_EQ(reader.content(), "a") << "half a character is not shown";
  ASSERT_TRUE(reader.take(event(R"(\udf89 b \\ud83c \udf89)")));
  ASSERT_TRUE(reader.take(event(R"(\ud83c)")));
  ASSERT_TRUE(reader.take("[DONE]"));
  const auto answer = std::move(reader).finish();
  ASSERT_TRUE(answer);
  EXPECT_EQ(answer->content, "a\xf0\x9f\x8e\x89 b \\ud83c \xef\xbf\xbd\xef\xbf\xbd");
}

TEST(ChatAnswer, calls_that_a_server_left_in_the_text_are_read_from_there) {
  const Json tools = {{{"type", "function"}, {"function", {{"name", "grep"}, {"parameters", Json::object()}}}}};
  ChatAnswer hermes{.content =
                        "<think>where</think>I look.\n<tool_call>\n{\"name\": \"grep\", \"arguments\": {\"a\": 1}}\n"
                        "</tool_call>"};
  ASSERT_TRUE(take_calls_of_text(tools, hermes));
  EXPECT_EQ(hermes.content, "I look.");
  EXPECT_EQ(hermes.reasoning, "where");
  ASSERT_EQ(hermes.calls.size(), 1u);
  EXPECT_EQ(hermes.calls[0].arguments, R"({"a":1})");
  ChatAnswer mistral{.content = R"([TOOL_CALLS][{"name": "grep", "arguments": {}}])"};
  EXPECT_TRUE(take_calls_of_text(tools, mistral));
  for (const char* text : {"", "no call", R"(<tool_call>{"name": "rm", "arguments": {}}</tool_call>)",
                           R"(<tool_call>{"name": "grep", "arguments": </tool_call>)"}) {
    ChatAnswer none{.content = text};
    EXPECT_FALSE(take_calls_of_text(tools, none)) << text;
    EXPECT_EQ(none.content, text);
  }
}

TEST(ChatAnswer, an_empty_stream_is_damaged_and_a_refusal_is_told) {
  EXPECT_EQ(read_stream({"[DONE]"}).error().code(), Code::kCorrupt);
  const auto refusal = read_stream({delta({{"refusal", "I will "}}), delta({{"refusal", "not."}}, "stop")});
  ASSERT_TRUE(refusal);
  EXPECT_EQ(refusal->refusal, "I will not.");
}

TEST(ChatAnswer, a_stream_that_breaks_off_and_what_is_no_chunk_is_damaged_and_an_error_is_the_servers) {
  EXPECT_EQ(read_stream({delta({{"content", "half"}})}).error().code(), Code::kCorrupt);
  EXPECT_EQ(read_stream({"{"}).error().code(), Code::kCorrupt);
  EXPECT_EQ(read_stream({"[1]"}).error().code(), Code::kCorrupt);
  EXPECT_EQ(read_stream({R"({"choices":{"delta":1}})"}).error().code(), Code::kCorrupt);
  EXPECT_EQ(read_stream({part(128, "c", "grep", "{}")}).error().code(), Code::kCorrupt);
  const auto error = read_stream({R"({"error":{"message":"out of memory"}})"}).error();
  EXPECT_EQ(error, Status::unavailable("the server says: out of memory"));
}

TEST(ChatAnswer, a_whole_answer_may_have_its_content_in_parts_and_its_reasoning_beside_it) {
  const auto answer = read_chat_answer(
      R"({"model":"m","choices":[{"finish_reason":"stop","message":{"role":"assistant","reasoning":"hm","content":[{"type":"text","text":"a"},{"type":"image"},{"type":"text","text":"b"}]}}]})");
  ASSERT_TRUE(answer) << answer.error().message();
  EXPECT_EQ(answer->content, "ab");
  EXPECT_EQ(answer->reasoning, "hm");
  EXPECT_FALSE(read_chat_answer(R"({"choices":[]})"));
  EXPECT_FALSE(read_chat_answer(R"({"choices":[{"message":{"tool_calls":[1]}}]})"));
  EXPECT_FALSE(read_chat_answer(""));
}

TEST(ChatAnswer, malformed_calls_are_told_to_the_model_and_ids_are_always_there_and_different) {
  ChatAnswer answer;
  answer.calls = {{"x", "grep", R"({"pattern": "a"})"},
                  {"x", "grep", "{\"pattern\": "},
                  {"", "", "{}"},
                  {"y", "grep", "[1]"},
                  {"z", "list_dir", ""}};
  AgentTurn turn;
  put_calls(answer, 3, turn);
  EXPECT_THAT(turn.call_ids, ElementsAre("x", "call_3_2", "call_3_3", "y", "z"));
  EXPECT_EQ(turn.calls[0].call.arguments, Json({{"pattern", "a"}}));
  EXPECT_THAT(turn.calls[1].error, StartsWith("Error: the arguments of the call are not valid JSON"));
  EXPECT_THAT(turn.calls[1].error, HasSubstr("They were: {\"pattern\":"));
  EXPECT_EQ(turn.calls[2].error, "Error: the call has no name.");
  EXPECT_EQ(turn.calls[3].error, "Error: the arguments of the call must be a JSON object.");
  EXPECT_EQ(turn.calls[4].error, "");
  // What is said to the server again is always JSON.
  const Json message = message_of(answer, turn);
  for (const auto& call : message["tool_calls"])
    EXPECT_TRUE(parse_json(call["function"]["arguments"].get<std::string>())->is_object());
}

TEST(ChatAnswer, any_bytes_are_an_answer_or_an_error_and_never_a_crash) {
  const std::string good = dump_json(Json::parse(
      delta({{"content", "é"},
             {"tool_calls", {{{"index", 0}, {"id", "c"}, {"function", {{"name", "grep"}, {"arguments", "{}"}}}}}}},
            "stop")));
  const std::string whole =
      R"({"choices":[{"message":{"content":"a","tool_calls":[{"id":"c","function":{"name":"grep","arguments":"{}"}}]}}],"usage":{"prompt_tokens":1}})";
  Random random(11);
  const std::string_view pieces[] = {
      "null", "[]", "{}", "\"\"", "-1", "1e99", "true", ",", ":", "\"choices\"", "\"index\":99999999999"};
  for (int round = 0; round < 4000; ++round) {
    std::string bytes = random.chance(0.5) ? good : whole;
    for (uint64_t edits = 1 + random.below(3); edits > 0; --edits) {
      const size_t at = random.below(bytes.size() + 1);
      if (random.chance(0.3)) {
        bytes.insert(at, random.pick(pieces));
      } else if (random.chance(0.3)) {
        bytes.resize(at);
      } else if (at < bytes.size()) {
        const size_t end = bytes.find_first_of(",]}", at);
        bytes.replace(at, std::min(end, bytes.size()) - at, random.pick(pieces));
      }
    }
    ChatAnswerReader reader;
    AgentTurn turn;
    if (reader.take(bytes).ok()) {
      if (const auto answer = std::move(reader).finish()) put_calls(*answer, 1, turn);
    }
    if (const auto answer = read_chat_answer(bytes)) put_calls(*answer, 1, turn);
    EXPECT_FALSE(words_of_error(500, bytes).empty());
  }
}

TEST(ChatAnswer, the_words_of_a_refusal_are_found_in_the_forms_that_servers_have) {
  EXPECT_EQ(words_of_error(404, R"({"error":{"message":"no such model"}})"), "status 404: no such model");
  EXPECT_EQ(words_of_error(400, R"({"object":"error","message":"bad"})"), "status 400: bad");
  EXPECT_EQ(words_of_error(422, R"({"detail":"field"})"), "status 422: field");
  EXPECT_EQ(words_of_error(502, "<html>a long page</html>"), "status 502");
  EXPECT_EQ(words_of_error(503, "try\x1b[31m later"), "status 503: try later");
  EXPECT_LT(words_of_error(500, std::string(10'000, 'x')).size(), 500u);
}

TEST(ChatAnswer, an_answer_that_a_server_gave_up_is_none) {
  ChatAnswerReader reader;
  ASSERT_TRUE(reader.take(R"({"choices":[{"index":0,"delta":{"content":"half"},"finish_reason":"error"}]})"));
  EXPECT_THAT(std::move(reader).finish().error().message(), testing::HasSubstr("ended its answer with an error"));
  const auto whole = read_chat_answer(R"({"choices":[{"finish_reason":"ERROR","message":{"content":"half"}}]})");
  EXPECT_FALSE(whole.has_value());
}

TEST(SpokenText, calls_and_unfinished_characters_are_held_back) {
  SpokenText spoken;
  EXPECT_EQ(spoken.grow("I look"), "I look");
  EXPECT_EQ(spoken.grow("I look at caf\xEF\xBF\xBD"), " at caf");
  EXPECT_EQ(spoken.grow("I look at café <tool"), "é");
  EXPECT_EQ(spoken.grow("I look at café <tools>"), " <tools>");
  EXPECT_EQ(spoken.grow("I look at café <tools> <tool_call>{}</tool_call>"), "");
  EXPECT_EQ(spoken.grow("I look at café <tools> <tool_call>{}</tool_call> and wait"), "\nand wait");
}

TEST(SpokenText, calls_of_the_models_own_dialect_are_held_back_too) {
  SpokenText spoken({.dialect = model::ToolDialect::kKimiK2});
  EXPECT_EQ(spoken.grow("One two <|tool_call"), "One two");
  EXPECT_EQ(spoken.grow("One two <|tool_call_begin|>functions.f:0"), "");
  SpokenText braces({.dialect = model::ToolDialect::kLlama3});
  EXPECT_EQ(braces.grow("{\"name\": \"f\", \"parameters\": {}}"), "");
}

TEST(SpokenText, reasoning_is_not_shown) {
  SpokenText spoken({.has_reasoning = true});
  EXPECT_EQ(spoken.grow("<think>Is it <tool_call>?</think>\n\nYes"), "Yes");
}

TEST(Urls, a_server_may_be_named_in_three_ways) {
  for (const char* url :
       {"http://h:1", "http://h:1/", "http://h:1/v1", "http://h:1/v1/", "http://h:1/v1/chat/completions"})
    EXPECT_EQ(completions_url(url), "http://h:1/v1/chat/completions");
  EXPECT_EQ(completions_url("https://h/api/openai"), "https://h/api/openai/chat/completions");
}

}  // namespace
}  // namespace tandem::rollout
