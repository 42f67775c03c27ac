// `tandem serve`: the real binary, asked over real sockets.
#include <arpa/inet.h>
#include <fmt/format.h>
#include <gmock/gmock.h>
#include <netinet/in.h>
#include <sys/socket.h>

#include <array>
#include <fstream>
#include <thread>

#include "base/random.h"
#include "tests/cli/serve_fixture.h"

namespace tandem {
namespace {

using testing::HasSubstr;

TEST_F(Serve, a_seeded_request_gives_the_tokens_and_logprobs_of_generate_and_score) {
  std::vector<Json> lines;
  for (int i = 0; i < 6; ++i) {
    lines.push_back({{"id", i},
                     {"messages", chat(fmt::format("Number {}?", i))["messages"]},
                     {"seed", 40 + i},
                     {"max_tokens", 20},
                     {"temperature", i % 2 == 0 ? 1.0 : 0.7},
                     {"top_p", i % 3 == 0 ? 0.9 : 1.0}});
  }
  const auto generated = lines_of({"generate"}, lines);
  ASSERT_EQ(generated.size(), lines.size());
  start();
  std::vector<Json> to_score;
  std::vector<Json> logprobs;
  int different = 0;
  for (size_t i = 0; i < lines.size(); ++i) {
    Json body = lines[i];
    body.erase("id");
    body["model"] = "tiny";
    body["return_token_ids"] = true;
    body["logprobs"] = true;
    body["n"] = 2;
    const Json answer = post("/v1/chat/completions", body);
    const Json& choice = answer["choices"][0];
    EXPECT_EQ(choice["token_ids"], generated[i]["tokens"]) << "choice 0 draws with the seed";
    different += choice["token_ids"] != answer["choices"][1]["token_ids"];
    Json said = Json::array();
    for (const Json& one : choice["logprobs"]["content"]) said.push_back(one["logprob"]);
    EXPECT_EQ(said, generated[i]["logprobs"]);
    // The same streamed.
    Json streamed = Json::array();
    std::string text;
    for (const Json& chunk : stream("/v1/chat/completions", body)) {
      if (chunk["choices"].empty() || chunk["choices"][0]["index"] != Json(0)) continue;
      const Json& part = chunk["choices"][0];
      for (const Json& token : part.value("token_ids", Json::array())) streamed.push_back(token);
      text += part["delta"].value("content", std::string());
    }
    EXPECT_EQ(streamed, generated[i]["tokens"]);
    EXPECT_EQ(text, choice["message"]["content"].get<std::string>());
    Json whole = answer["prompt_token_ids"];
    for (const Json& token : choice["token_ids"]) whole.push_back(token);
    // A prompt that is scored over HTTP has the same floats.
    const Json echo = post("/v1/completions",
                           {{"model", "tiny"}, {"prompt", whole}, {"max_tokens", 0}, {"echo", true}, {"logprobs", 1}});
    logprobs.push_back(echo["choices"][0]["logprobs"]["token_logprobs"]);
    to_score.push_back({{"id", i}, {"tokens", whole}});
  }
  EXPECT_GT(different, 0) << "choice 1 draws with the next seed, and may say the same now and then";
  const auto scored = lines_of({"score"}, to_score);
  for (size_t i = 0; i < scored.size(); ++i) {
    ASSERT_TRUE(logprobs[i][0].is_null());
    Json rest = Json::array();
    for (size_t at = 1; at < logprobs[i].size(); ++at) rest.push_back(logprobs[i][at]);
    Json expected = scored[i]["logprobs"];
    if (expected.size() == logprobs[i].size()) expected.erase(expected.begin());
    EXPECT_EQ(rest, expected);
  }
}

TEST_F(Serve, answers_have_the_shape_of_openais) {
  start();
  const auto chunks =
      stream("/v1/chat/completions",
             chat("Say it.",
                  {{"n", 2}, {"max_tokens", 5}, {"ignore_eos", true}, {"stream_options", {{"include_usage", true}}}}));
  std::map<int64_t, int> finishes, firsts;
  for (const Json& chunk : chunks) {
    EXPECT_EQ(chunk["id"], chunks[0]["id"]);
    EXPECT_EQ(chunk["created"], chunks[0]["created"]);
    for (const Json& choice : chunk["choices"]) {
      finishes[choice["index"].get<int64_t>()] += !choice["finish_reason"].is_null();
      firsts[choice["index"].get<int64_t>()] += choice["delta"].contains("role");
    }
  }
  EXPECT_EQ(finishes, (std::map<int64_t, int>{{0, 1}, {1, 1}}));
  EXPECT_EQ(firsts, finishes);
  EXPECT_TRUE(chunks.back()["choices"].empty());
  EXPECT_EQ(chunks.back()["usage"]["completion_tokens"], Json(10));

  const Json nothing = post("/v1/chat/completions", chat("Say it.", {{"max_tokens", 0}}));
  EXPECT_EQ(nothing["choices"][0]["finish_reason"], Json("length"));
  EXPECT_EQ(nothing["choices"][0]["message"]["content"], Json(""));
  const Json many = post("/v1/completions", {{"model", "tiny"}, {"prompt", {"a", "b"}}, {"n", 2}, {"max_tokens", 2}});
  EXPECT_EQ(many["choices"].size(), 4u);
  EXPECT_EQ(post("/v1/completions",
                 {{"model", "tiny"}, {"prompt", "a"}, {"echo", true}, {"max_tokens", 0}})["choices"][0]["text"],
            Json("a"));
  const Json tokens = post("/tokenize", {{"prompt", "some words"}});
  EXPECT_EQ(post("/detokenize", {{"tokens", tokens["tokens"]}})["prompt"], Json("some words"));
  EXPECT_EQ(ask("/v1/models", "", "", "GET").json()["data"][0]["id"], Json("tiny"));
  EXPECT_EQ(ask("/health", "", "", "GET").status, 200);
  const Json answer =
      post("/v1/chat/completions", chat("Give JSON.", {{"max_tokens", 900},
                                                       {"seed", 1},
                                                       {"response_format",
                                                        {{"type", "json_schema"},
                                                         {"json_schema",
                                                          {{"name", "n"},
                                                           {"schema",
                                                            {{"type", "object"},
                                                             {"properties", {{"n", {{"enum", {1, 2}}}}}},
                                                             {"required", {"n"}},
                                                             {"additionalProperties", false}}}}}}}}));
  const auto parsed = parse_json(answer["choices"][0]["message"]["content"].get<std::string>());
  EXPECT_TRUE(parsed && parsed->contains("n")) << dump_json(answer);
  const Json tool = {{"type", "function"},
                     {"function",
                      {{"name", "look"},
                       {"parameters",
                        {{"type", "object"},
                         {"properties", {{"x", {{"enum", {"a", "b"}}}}}},
                         {"required", {"x"}},
                         {"additionalProperties", false}}}}}};
  const Json called = post("/v1/chat/completions",
                           chat("Look.", {{"max_tokens", 900},
                                          {"seed", 2},
                                          {"tools", Json::array({tool})},
                                          {"tool_choice", {{"type", "function"}, {"function", {{"name", "look"}}}}},
                                          {"parallel_tool_calls", false}}));
  EXPECT_EQ(called["choices"][0]["finish_reason"], Json("tool_calls")) << dump_json(called);
  EXPECT_EQ(called["choices"][0]["message"]["tool_calls"][0]["function"]["name"], Json("look"));
}

TEST_F(Serve, anthropics_messages_are_the_same_conversation) {
  start();
  const Json openai =
      post("/v1/chat/completions", chat("Tell me.", {{"seed", 1}, {"max_tokens", 30}, {"temperature", 0}}));
  const Json body = {
      {"model", "tiny"},
      {"max_tokens", 30},
      {"temperature", 0},
      {"messages",
       Json::array({{{"role", "user"}, {"content", Json::array({{{"type", "text"}, {"text", "Tell me."}}})}}})}};
  const Json answer = post("/v1/messages", body);
  EXPECT_EQ(answer["type"], Json("message"));
  EXPECT_EQ(answer["content"][0]["text"], openai["choices"][0]["message"]["content"]);
  EXPECT_EQ(answer["stop_reason"],
            Json(openai["choices"][0]["finish_reason"] == Json("length") ? "max_tokens" : "end_turn"));
  EXPECT_EQ(post("/v1/messages/count_tokens", {{"model", "tiny"}, {"messages", body["messages"]}})["input_tokens"],
            openai["usage"]["prompt_tokens"]);
  Json streamed = body;
  streamed["stream"] = true;
  const auto raw = ask("/v1/messages", dump_json(streamed));
  wire::EventStreamDecoder decoder(size_t{1} << 20);
  std::string text, last;
  const auto events = decoder.feed(raw.body);
  for (const auto& event : *events) {
    const Json data = *parse_json(event.data);
    EXPECT_EQ(data["type"], Json(event.type));
    if (event.type == "content_block_delta") text += data["delta"].value("text", std::string());
    last = event.type;
  }
  EXPECT_EQ(text, answer["content"][0]["text"].get<std::string>());
  EXPECT_EQ(last, "message_stop");
  const Json tool = {{"name", "look"},
                     {"input_schema",
                      {{"type", "object"},
                       {"properties", {{"x", {{"enum", {"a", "b"}}}}}},
                       {"required", {"x"}},
                       {"additionalProperties", false}}}};
  Json calls = body;
  calls["max_tokens"] = 900;
  calls["tools"] = Json::array({tool});
  calls["tool_choice"] = {{"type", "tool"}, {"name", "look"}, {"disable_parallel_tool_use", true}};
  calls["temperature"] = 1;
  const Json called = post("/v1/messages", calls);
  EXPECT_EQ(called["stop_reason"], Json("tool_use")) << dump_json(called);
  EXPECT_EQ(called["content"].back()["name"], Json("look"));
  // The call and its result go back.
  calls["tools"] = Json::array({tool});
  calls["tool_choice"] = {{"type", "none"}};
  calls["max_tokens"] = 3;
  calls["messages"].push_back({{"role", "assistant"}, {"content", called["content"]}});
  calls["messages"].push_back(
      {{"role", "user"},
       {"content",
        Json::array({{{"type", "tool_result"}, {"tool_use_id", called["content"].back()["id"]}, {"content", "a"}}})}});
  EXPECT_EQ(post("/v1/messages", calls)["type"], Json("message"));
  const auto wrong = ask(
      "/v1/messages", R"({"model":"tiny","max_tokens":3,"messages":[{"role":"user","content":[{"type":"image"}]}]})");
  EXPECT_EQ(wrong.status, 400);
  EXPECT_EQ(wrong.json()["type"], Json("error"));
}

TEST_F(Serve, responses_are_the_same_conversation) {
  start();
  const Json openai = post("/v1/chat/completions", chat("Tell me.", {{"max_tokens", 30}, {"temperature", 0}}));
  const Json body = {{"model", "tiny"}, {"input", "Tell me."}, {"max_output_tokens", 30}, {"temperature", 0}};
  const Json answer = post("/v1/responses", body);
  const Json& said = openai["choices"][0];
  EXPECT_EQ(answer["output"][0]["content"][0]["text"], said["message"]["content"]);
  EXPECT_EQ(answer["status"], Json(said["finish_reason"] == Json("length") ? "incomplete" : "completed"));
  EXPECT_EQ(answer["usage"]["input_tokens"], openai["usage"]["prompt_tokens"]);
  Json calls = body;
  calls["stream"] = true;
  calls["temperature"] = 1;
  calls["seed"] = 2;
  calls["max_output_tokens"] = 900;
  calls["tool_choice"] = {{"type", "function"}, {"name", "look"}};
  calls["parallel_tool_calls"] = false;
  calls["tools"] = Json::array({{{"type", "function"},
                                 {"name", "look"},
                                 {"parameters",
                                  {{"type", "object"},
                                   {"properties", {{"x", {{"enum", {"a", "b"}}}}}},
                                   {"required", {"x"}},
                                   {"additionalProperties", false}}}}});
  const auto raw = ask("/v1/responses", dump_json(calls));
  wire::EventStreamDecoder decoder(size_t{1} << 20);
  const auto events = decoder.feed(raw.body);
  ASSERT_TRUE(events && !events->empty()) << raw.body;
  int64_t number = 0;
  std::string arguments;
  Json last;
  for (const auto& event : *events) {
    last = *parse_json(event.data);
    EXPECT_EQ(last["type"], Json(event.type));
    EXPECT_EQ(last["sequence_number"], Json(number++));
    if (event.type == "response.function_call_arguments.delta") arguments += last["delta"].get<std::string>();
  }
  EXPECT_EQ(last["type"], Json("response.completed")) << dump_json(last);
  const Json call = last["response"]["output"].back();
  EXPECT_EQ(call["name"], Json("look"));
  EXPECT_EQ(call["arguments"], Json(arguments));
  // The call and its result go back.
  Json again = body;
  again["input"] = Json::array({{{"role", "user"}, {"content", "Look."}},
                                call,
                                {{"type", "function_call_output"}, {"call_id", call["call_id"]}, {"output", "a"}}});
  EXPECT_EQ(post("/v1/responses", again)["object"], Json("response"));
  EXPECT_EQ(ask("/v1/responses", R"({"model":"tiny","input":"a","previous_response_id":"resp_1"})").status, 400);
}

TEST_F(Serve, a_response_goes_on_from_an_earlier_one_as_if_all_had_been_sent) {
  start();
  const Json fixed = {{"model", "tiny"}, {"max_output_tokens", 12}, {"temperature", 0}};
  const auto respond = [&](Json more) {
    more.update(fixed);
    return post("/v1/responses", more);
  };
  const Json first = respond({{"input", "Tell me."}});
  const Json second = respond({{"input", "And then?"}, {"previous_response_id", first["id"]}});
  EXPECT_EQ(second["previous_response_id"], first["id"]);
  const Json message = {{"role", "user"}, {"content", "Tell me."}};
  const Json whole =
      respond({{"input", Json::array({message, first["output"][0], {{"role", "user"}, {"content", "And then?"}}})}});
  EXPECT_EQ(second["output"][0]["content"], whole["output"][0]["content"]);
  EXPECT_EQ(second["usage"]["input_tokens"], whole["usage"]["input_tokens"]);
  // A stream is kept, too, and a third turn has all of it.
  const Json streamed_body = {{"input", "More."}, {"previous_response_id", second["id"]}, {"stream", true}};
  Json request = streamed_body;
  request.update(fixed);
  const auto raw = ask("/v1/responses", dump_json(request));
  wire::EventStreamDecoder decoder(size_t{1} << 20);
  const auto events = decoder.feed(raw.body);
  ASSERT_TRUE(events && !events->empty()) << raw.body;
  const Json streamed = (*parse_json(events->back().data))["response"];
  EXPECT_GT(streamed["usage"]["input_tokens"].get<int>(), second["usage"]["input_tokens"].get<int>());
  const std::string path = "/v1/responses/" + streamed["id"].get<std::string>();
  EXPECT_EQ(ask(path, "", "", "GET").json()["output"], streamed["output"]);
  EXPECT_EQ(ask(path, "", "", "DELETE").json()["deleted"], true);
  EXPECT_EQ(ask(path, "", "", "GET").status, 404);
  const Json unkept = respond({{"input", "Secret."}, {"store", false}});
  EXPECT_EQ(unkept["store"], false);
  EXPECT_EQ(ask("/v1/responses/" + unkept["id"].get<std::string>(), "", "", "GET").status, 404);
}

TEST_F(Serve, a_prediction_changes_no_token_and_the_usage_says_what_came_of_it) {
  start();
  const Json ask_for = {{"max_tokens", 80}, {"temperature", 0}, {"return_token_ids", true}, {"logprobs", true}};
  const Json plain = post("/v1/chat/completions", chat("Count.", ask_for));
  const std::string said = plain["choices"][0]["message"]["content"].get<std::string>();
  const Json tokenised = post("/tokenize", {{"model", "tiny"}, {"prompt", said}, {"add_special_tokens", false}});
  const int tokens = tokenised["count"].get<int>();
  ASSERT_GT(tokens, 0);
  EXPECT_EQ(plain["usage"]["completion_tokens_details"]["accepted_prediction_tokens"], 0);
  EXPECT_EQ(plain["usage"]["completion_tokens_details"]["rejected_prediction_tokens"], 0);
  const auto predicted = [&](const Json& content) {
    Json more = ask_for;
    more["prediction"] = {{"type", "content"}, {"content", content}};
    return chat("Count.", more);
  };
  const Json parts = Json::array({{{"type", "text"}, {"text", said}}});
  for (const Json& content : {Json(said), parts}) {
    const Json answer = post("/v1/chat/completions", predicted(content));
    EXPECT_EQ(answer["choices"][0], plain["choices"][0]);
    const Json& details = answer["usage"]["completion_tokens_details"];
    EXPECT_EQ(details["accepted_prediction_tokens"].get<int>() + details["rejected_prediction_tokens"].get<int>(),
              tokens);
    EXPECT_EQ(answer["usage"]["completion_tokens"], plain["usage"]["completion_tokens"]);
  }
  const Json other = post("/v1/chat/completions", predicted("Nothing that the model would say: 1 2 3."));
  EXPECT_EQ(other["choices"][0], plain["choices"][0]);
  EXPECT_GT(metric("tandem_drafted_tokens_total"), 0);
  for (const Json& wrong : {Json({{"type", "text"}, {"content", "a"}}), Json({{"type", "content"}, {"content", 5}}),
                            Json({{"type", "content"}, {"content", {{{"type", "image"}}}}}), Json::object()}) {
    const auto refused = ask("/v1/chat/completions", dump_json(chat("Count.", {{"prediction", wrong}})));
    EXPECT_EQ(refused.status, 400) << wrong;
    EXPECT_EQ(refused.json()["error"]["param"], "prediction");
  }
  start({"--speculation", "off"});
  EXPECT_EQ(post("/v1/chat/completions", predicted(said))["choices"][0], plain["choices"][0]);
  EXPECT_EQ(metric("tandem_drafted_tokens_total"), 0);
}

TEST_F(Serve, answers_to_one_prompt_share_its_pages) {
  start();
  std::vector<int> prompt(150);
  for (size_t i = 0; i < prompt.size(); ++i) prompt[i] = 5 + static_cast<int>(i * 7 % 90);
  post("/v1/completions", {{"model", "tiny"}, {"prompt", prompt}, {"max_tokens", 12}, {"n", 4}, {"ignore_eos", true}});
  // Three of four share all but the last token with one that is there, and the two whole pages of 64 with one that has
  // ended before they came.
  const auto hits = metric("tandem_prefix_cache_hits_total");
  EXPECT_GE(hits, 3 * 128);
  EXPECT_LE(hits, 3 * 149);
}

TEST_F(Serve, the_best_of_several_answers_come_back) {
  start();
  Json body = {{"model", "tiny"}, {"prompt", "Once"}, {"max_tokens", 8}, {"seed", 3}, {"n", 5}, {"logprobs", 0}};
  const auto mean_of = [](const Json& choice) {
    double sum = 0;
    const Json& logprobs = choice["logprobs"]["token_logprobs"];
    for (const Json& one : logprobs) sum += one.get<double>();
    return sum / static_cast<double>(logprobs.size());
  };
  std::vector<Json> all = post("/v1/completions", body)["choices"].get<std::vector<Json>>();
  ASSERT_EQ(all.size(), 5u);
  std::ranges::stable_sort(all, std::ranges::greater(), mean_of);
  body["n"] = 2;
  body["best_of"] = 5;
  const Json best = post("/v1/completions", body)["choices"];
  ASSERT_EQ(best.size(), 2u);
  for (size_t i = 0; i < 2; ++i) {
    all[i]["index"] = i;
    EXPECT_EQ(best[i], all[i]);
  }
  body["stream"] = true;
  EXPECT_EQ(ask("/v1/completions", dump_json(body)).status, 400);
  body["stream"] = false;
  body["n"] = 6;
  EXPECT_EQ(ask("/v1/completions", dump_json(body)).json()["error"]["param"], "best_of");
}

TEST_F(Serve, what_is_wrong_in_a_request_is_one_clear_4xx) {
  start();
  const auto error = [&](const std::string& path, const std::string& body) {
    const auto answer = ask(path, body);
    const Json json = answer.json();
    EXPECT_TRUE(json.contains("error")) << answer.body;
    return fmt::format("{} {} {}", answer.status,
                       json["error"]["param"].is_null() ? "" : json["error"]["param"].get<std::string>(),
                       json["error"]["message"].get<std::string>());
  };
  const std::string completions = "/v1/completions", chats = "/v1/chat/completions";
  EXPECT_THAT(error(completions, R"({"model":"tiny","prompt":"a","guided_json":{}})"), HasSubstr("400 guided_json"));
  EXPECT_THAT(error(completions, R"({"model":"tiny","prompt":"a","top_k":9223372036854775808})"),
              HasSubstr("400 top_k"));
  EXPECT_THAT(error(completions, R"({"model":"tiny","prompt":[[1,-1]]})"), HasSubstr("400 prompt"));
  EXPECT_THAT(error(completions, R"({"model":"tiny","prompt":[1,[2]]})"), HasSubstr("400 prompt"));
  EXPECT_THAT(error(completions, R"({"model":"tiny","prompt":"a","suffix":"b"})"), HasSubstr("400 suffix"));
  EXPECT_THAT(error(completions, R"({"model":"other","prompt":"a"})"), HasSubstr("404 model"));
  EXPECT_THAT(error(completions, R"({"model":"tiny"})"), HasSubstr("400 prompt \"prompt\" is missing"));
  EXPECT_THAT(error(completions, R"({"model":"tiny","prompt":"a","stop":[1]})"), HasSubstr("400 stop"));
  EXPECT_THAT(error(completions, R"({"model":"tiny","prompt":"a","logit_bias":{"1":"x"}})"),
              HasSubstr("400 logit_bias"));
  EXPECT_THAT(error(completions, "{\"model\":\"tiny\",\"prompt\":\"" + std::string(100000, 'a') + "\"}"),
              HasSubstr("400 prompt"));
  EXPECT_THAT(error(completions, std::string(100000, '[')), HasSubstr("400"));
  EXPECT_THAT(error(completions, "{\"model\":\"tiny\",\"prompt\":\"\xff\xfe\"}"), HasSubstr("400"));
  EXPECT_THAT(error(completions, ""), HasSubstr("400"));
  EXPECT_THAT(error(chats, R"({"model":"tiny","messages":[{"role":"king","content":"a"}]})"),
              HasSubstr("400 messages"));
  EXPECT_THAT(error(chats, R"({"model":"tiny","messages":[{"role":"user","content":[{"type":"image_url"}]}]})"),
              HasSubstr("image_url"));
  EXPECT_THAT(error(chats, R"({"model":"tiny","messages":["a"]})"), HasSubstr("400 messages"));
  EXPECT_THAT(error(chats, R"({"model":"tiny","messages":[{"role":"user","content":"a"}],"tools":[{"type":"x"}]})"),
              HasSubstr("400 tools"));
  EXPECT_THAT(error(chats, R"({"model":"tiny","messages":[{"role":"user","content":"a"}],"tool_choice":"required"})"),
              HasSubstr("400 tool_choice"));
  EXPECT_THAT(
      error(
          chats,
          R"({"model":"tiny","messages":[{"role":"user","content":"a"}],"response_format":{"type":"json_schema","json_schema":{"schema":{"type":"x"}}}})"),
      HasSubstr("400 response_format"));
  EXPECT_THAT(error("/v1/nothing", "{}"), HasSubstr("404"));
  EXPECT_THAT(error("/health", "{}"), HasSubstr("405"));
  EXPECT_THAT(error("/v1/embeddings", R"({"model":"m","input":"a"})"), HasSubstr("--embedding-model"));
  EXPECT_EQ(ask(completions, std::string((16 << 20) + 1, ' ')).status, 413);
  EXPECT_EQ(post(completions, {{"model", "tiny"}, {"prompt", "still there"}, {"max_tokens", 1}})["choices"].size(), 1u);
}

TEST_F(Serve, keys_are_asked_for_and_read_again) {
  { std::ofstream(root() / "keys") << "# of the team\none\n"; }
  start({"--api-key-file", (root() / "keys").string()});
  const std::string body = R"({"model":"tiny","prompt":"a","max_tokens":1})";
  EXPECT_EQ(ask("/v1/completions", body).status, 401);
  EXPECT_EQ(ask("/v1/completions", body, "two").status, 401);
  EXPECT_EQ(ask("/v1/completions", body, "one").status, 200);
  EXPECT_EQ(ask("/health", "", "", "GET").status, 200);
  { std::ofstream(root() / "keys.new") << "two\n"; }
  fs::rename(root() / "keys.new", root() / "keys");
  EXPECT_TRUE(within(30s, [&] { return ask("/v1/completions", body, "two").status == 200; }));
  EXPECT_EQ(ask("/v1/completions", body, "one").status, 401);
  EXPECT_EQ(tandem({"serve", "--model", (root() / "model").string(), "--host", "0.0.0.0", "--port", "0"}), 2);
}

TEST_F(Serve, an_admin_pauses_it_and_puts_it_to_sleep_and_answers_go_on_as_if_nothing_had_been) {
  { std::ofstream(root() / "keys") << "user\n"; }
  { std::ofstream(root() / "admins") << "admin\n"; }
  start({"--api-key-file", (root() / "keys").string(), "--admin-key-file", (root() / "admins").string()});
  const std::string body = R"({"model":"tiny","prompt":"Once","max_tokens":40,"temperature":0,"ignore_eos":true})";
  const auto said = [&](const std::string& key) {
    const auto answer = ask("/v1/completions", body, key);
    EXPECT_EQ(answer.status, 200) << answer.body;
    return answer.json()["choices"];
  };
  const Json expected = said("user");
  EXPECT_EQ(said("admin"), expected);
  EXPECT_EQ(ask("/pause", "", "user").status, 403);
  EXPECT_EQ(ask("/pause", "").status, 401);
  EXPECT_EQ(ask("/pause?mode=later", "", "admin").status, 400);
  EXPECT_EQ(ask("/pause", "", "admin", "GET").status, 405);
  for (const std::string path : {"/pause", "/pause?mode=keep", "/sleep"}) {
    ASSERT_EQ(ask(path, "", "admin").status, 200) << path;
    EXPECT_EQ(ask("/is_paused", "", "admin", "GET").json()["is_paused"], path != "/sleep");
    EXPECT_EQ(ask("/is_sleeping", "", "admin", "GET").json()["is_sleeping"], path == "/sleep");
    EXPECT_EQ(ask("/health", "", "", "GET").status, 200);
    EXPECT_EQ(ask("/ready", "", "", "GET").status, 503);
    std::atomic<bool> answered{false};
    Json later;
    std::jthread asks([&] {
      later = said("user");
      answered = true;
    });
    ASSERT_TRUE(within(30s, [&] { return ask("/load", "", "user", "GET").json()["server_load"] == Json(1); }));
    EXPECT_FALSE(answered);
    ASSERT_EQ(ask(path == "/sleep" ? "/wake_up" : "/resume", "", "admin").status, 200);
    asks.join();
    EXPECT_EQ(later, expected);
    EXPECT_EQ(ask("/ready", "", "", "GET").status, 200);
  }
  start();
  EXPECT_EQ(ask("/pause", "").status, 403) << "nobody is an admin";
}

TEST_F(Serve, prompts_of_another_salt_are_computed_again) {
  start();
  std::vector<int> prompt(150);
  for (size_t i = 0; i < prompt.size(); ++i) prompt[i] = 5 + static_cast<int>(i * 7 % 90);
  const auto cached = [&](const Json& more) {
    Json body = {{"model", "tiny"}, {"prompt", prompt}, {"max_tokens", 2}, {"seed", 1}};
    body.update(more);
    const Json answer = post("/v1/completions", body);
    return answer["usage"]["prompt_tokens_details"]["cached_tokens"].get<int>();
  };
  EXPECT_EQ(cached(Json::object()), 0);
  EXPECT_EQ(cached(Json::object()), 128);
  EXPECT_EQ(cached({{"cache_salt", "a"}}), 0);
  EXPECT_EQ(cached({{"cache_salt", "a"}}), 128);
  EXPECT_EQ(cached({{"cache_salt", "b"}}), 0);
  // By key, whatever the requests say.
  { std::ofstream(root() / "keys") << "one\ntwo\n"; }
  { std::ofstream(root() / "serve.yaml") << "serve:\n  salt_by_key: true\n"; }
  start({"--api-key-file", (root() / "keys").string(), "--config", (root() / "serve.yaml").string()});
  const auto by_key = [&](const std::string& key) {
    const Json body = {{"model", "tiny"}, {"prompt", prompt}, {"max_tokens", 2}};
    const auto answer = ask("/v1/completions", dump_json(body), key);
    return answer.json()["usage"]["prompt_tokens_details"]["cached_tokens"].get<int>();
  };
  EXPECT_EQ(by_key("one"), 0);
  EXPECT_EQ(by_key("two"), 0);
  EXPECT_EQ(by_key("one"), 128);
}

TEST_F(Serve, a_client_that_goes_away_frees_its_slot_and_a_full_queue_says_when_to_come_again) {
  { std::ofstream(root() / "serve.yaml") << "serve:\n  queue: 1\n  slots: 1\n"; }
  start({"--config", (root() / "serve.yaml").string()});
  const Json endless = {
      {"model", "tiny"}, {"prompt", "a"}, {"max_tokens", 1000}, {"ignore_eos", true}, {"logit_bias", {{"0", -100}}}};
  std::stop_source leave;
  std::vector<std::jthread> clients;
  for (int i = 0; i < 2; ++i) {
    clients.emplace_back([&] {
      while (!leave.stop_requested()) ask("/v1/completions", dump_json(endless), "", "POST", leave.get_token());
    });
  }
  EXPECT_TRUE(within(60s, [&] {
    const auto answer = ask("/v1/completions", dump_json(endless), "", "POST", {});
    return answer.status == 429 && answer.retry_after.has_value();
  }));
  leave.request_stop();
  clients.clear();
  EXPECT_TRUE(
      within(60s, [&] { return metric("tandem_requests_running") == 0 && metric("tandem_requests_waiting") == 0; }));
}

TEST_F(Serve, sigterm_lets_running_answers_end_and_refuses_new_ones) {
  { std::ofstream(root() / "serve.yaml") << "serve:\n  drain_seconds: 600\n"; }
  start({"--config", (root() / "serve.yaml").string()});
  // The tiny model says 900 tokens in less than a tenth of a second: many of them, so that they are under way for long.
  const Json body = {{"model", "tiny"}, {"prompt", "a"}, {"max_tokens", 900}, {"ignore_eos", true}, {"n", 64}};
  std::array<Answer, 3> running;
  std::vector<std::jthread> clients;
  for (auto& answer : running) clients.emplace_back([&] { answer = ask("/v1/completions", dump_json(body)); });
  ASSERT_TRUE(within(60s, [&] { return metric("tandem_requests_waiting") > 128; }));
  server_->signal(SIGTERM);
  bool refused = false;
  while (server_->running()) {
    const auto answer = ask("/v1/completions", R"({"model":"tiny","prompt":"b","max_tokens":1})");
    refused = refused || (answer.status == 503 && answer.retry_after.has_value());
  }
  clients.clear();
  for (const auto& answer : running) {
    EXPECT_EQ(answer.status, 200) << answer.body;
    EXPECT_EQ(answer.json()["usage"]["completion_tokens"], Json(64 * 900));
  }
  EXPECT_TRUE(refused);
  EXPECT_EQ(server_->wait(), 0);
}

TEST_F(Serve, clients_that_break_off_at_random_leave_nothing_behind) {
  start({"--slots", "4"});
  const auto descriptors = [&] {
    return std::distance(fs::directory_iterator(fmt::format("/proc/{}/fd", server_->pid())), fs::directory_iterator());
  };
  post("/v1/completions", {{"model", "tiny"}, {"prompt", "a"}, {"max_tokens", 1}});
  std::vector<std::jthread> clients;
  for (int c = 0; c < 4; ++c) {
    clients.emplace_back([&, c] {
      Random random(c);
      for (int i = 0; i < 40; ++i) {
        std::stop_source leave;
        const int most = static_cast<int>(random.below(60));
        int seen = 0;
        wire::OutgoingRequest request{.url = url_ + "/v1/completions"};
        request.headers = {{"Content-Type", "application/json"}};
        request.body = dump_json({{"model", "tiny"},
                                  {"prompt", fmt::format("{} {}", c, i)},
                                  {"max_tokens", 200},
                                  {"n", 1 + random.below(3)},
                                  {"stream", true}});
        [[maybe_unused]] const auto ended = wire::http_request(
            request,
            [&](const wire::HttpHead&, std::string_view) {
              return ++seen > most ? Status::cancelled("enough") : Status();
            },
            leave.get_token());
      }
    });
  }
  clients.clear();
  EXPECT_TRUE(
      within(60s, [&] { return metric("tandem_requests_running") == 0 && metric("tandem_requests_waiting") == 0; }));
  EXPECT_LE(descriptors(), 40);
  const Json answer =
      post("/v1/completions", {{"model", "tiny"}, {"prompt", "a"}, {"max_tokens", 3}, {"ignore_eos", true}});
  EXPECT_EQ(answer["usage"]["completion_tokens"], Json(3));
}

}  // namespace
}  // namespace tandem
