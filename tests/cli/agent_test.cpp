// `tandem agent` as its users meet it: the binary itself, on folders of theirs, with a model in the process or servers.
#include <gmock/gmock.h>

#include <fstream>
#include <map>

#include "envs/episodes/opening.h"
#include "envs/tasks/workspace/kinds.h"
#include "rollout/books/trajectory.h"
#include "tests/cli/agent_fixture.h"
#include "tests/envs/sandbox_fixture.h"

namespace tandem {
namespace {

using testing::HasSubstr;
using testing::Not;

TEST_F(Agent, two_calls_of_one_message_are_run_and_what_was_changed_is_shown_and_written_back) {
  ScriptedServer server;
  server.stream("I look first.", {ScriptedServer::call("c1", "read_file", {{"target_file", "app.ini"}}),
                                  ScriptedServer::call("c2", "list_dir", {{"target_directory", "notes"}})});
  script_an_edit(server);
  ASSERT_EQ(run(with(server)), 0) << text(output());
  EXPECT_EQ(get("app.ini"), "[cache]\ncache_limit = 40\n");
  const auto shown = text(output());
  EXPECT_THAT(shown, HasSubstr("I look first."));
  EXPECT_THAT(shown, HasSubstr("> read_file(target_file: \"app.ini\")"));
  EXPECT_THAT(shown, HasSubstr("-cache_limit = 20\n+cache_limit = 40\n"));
  EXPECT_THAT(shown, HasSubstr("Written back: 1 of 1."));
  EXPECT_THAT(shown, HasSubstr("11 + 5 tokens"));
  const auto requests = server.requests();
  ASSERT_EQ(requests.size(), 3u);
  EXPECT_EQ(server.header(0, "authorization"), "Bearer " + kAgentKey);
  EXPECT_EQ(requests[0]["model"], "m");
  EXPECT_EQ(requests[0]["parallel_tool_calls"], true);
  EXPECT_EQ(requests[0]["stream"], true);
  EXPECT_EQ(requests[0]["tools"].size(), 11u);
  EXPECT_THAT(requests[0]["messages"][1]["content"].get<std::string>(),
              HasSubstr("app.ini\nnotes/a.txt\nnotes/b.txt\n\nDo it."));
  const auto& messages = requests[1]["messages"];
  ASSERT_EQ(messages.size(), 5u);
  EXPECT_EQ(messages[2]["tool_calls"].size(), 2u);
  EXPECT_EQ(messages[3]["tool_call_id"], "c1");
  EXPECT_THAT(messages[3]["content"].get<std::string>(), HasSubstr("cache_limit = 20"));
  EXPECT_EQ(messages[4]["tool_call_id"], "c2");
  EXPECT_EQ(messages[4]["content"], "a.txt\nb.txt\n");
}

TEST_F(Agent, with_an_encoder_the_model_is_offered_codebase_search_and_reads_what_it_finds) {
  ScriptedServer server;
  put("src/session.py", "def refresh_session(token):\n    return token\n");
  server.stream("I search.", {ScriptedServer::call("c1", "codebase_search", {{"query", "refresh the session"}})});
  server.stream("It is in src/session.py.");
  const auto encoder = fs::path(TANDEM_SOURCE_DIR) / "tests/golden/encoders/sentences";
  ASSERT_EQ(run(with(server, {"--encoder", encoder.string()})), 0) << text(output());
  const auto requests = server.requests();
  ASSERT_EQ(requests.size(), 2u);
  EXPECT_EQ(requests[0]["tools"].size(), 12u);
  EXPECT_THAT(requests[1]["messages"].back()["content"].get<std::string>(),
              testing::StartsWith("src/session.py:1-2 (score "));
}

TEST_F(Agent, an_answer_that_was_cut_or_refused_is_no_success_by_whatever_word) {
  for (const auto& [reason, why] : {std::pair{"refusal", "a refusal of the model's"},
                                    {"model_length", "the server's or its own limit of tokens"},
                                    {"MAX_TOKENS", "the server's or its own limit of tokens"},
                                    {"content_filter: SAFETY", "the server's content filter"},
                                    {"RECITATION", "the server's content filter"}}) {
    ScriptedServer server;
    const Json choice = {{"message", {{"role", "assistant"}, {"content", "Half"}}}, {"finish_reason", reason}};
    server.answer({200, {{"Content-Type", "application/json"}}, dump_json(Json{{"choices", {choice}}})});
    EXPECT_EQ(run(with(server, {"--json"})), 1) << reason;
    EXPECT_EQ(events("turn").at(0)["cut_by"], why) << reason;
  }
}

TEST_F(Agent, a_busy_server_one_that_fails_and_a_cut_stream_are_asked_again) {
  ScriptedServer server;
  server.answer({429, {{"Retry-After", "1"}}, R"({"error":{"message":"slow down"}})"});
  server.answer({500, {}, "oops"});
  server.stream_cut("I was about to");
  script_an_edit(server);
  ASSERT_EQ(run(with(server, {"--json"})), 0) << text(output());
  const auto troubles = events("trouble");
  ASSERT_EQ(troubles.size(), 3u);
  EXPECT_THAT(troubles[0]["message"].get<std::string>(), HasSubstr("status 429: slow down"));
  EXPECT_THAT(troubles[1]["message"].get<std::string>(), HasSubstr("status 500"));
  EXPECT_THAT(troubles[2]["message"].get<std::string>(), HasSubstr("broke off"));
  EXPECT_EQ(server.requests().size(), 5u);
  EXPECT_EQ(get("app.ini"), "[cache]\ncache_limit = 40\n");
}

TEST_F(Agent, when_a_server_is_gone_the_next_one_goes_on_with_the_same_conversation) {
  ScriptedServer first, second;
  first.stream("I look.", {ScriptedServer::call("c1", "read_file", {{"target_file", "app.ini"}})});
  script_an_edit(second);
  auto line = with(first);
  line.insert(line.end() - 1, {"--endpoint", second.url(), "--json"});
  ASSERT_EQ(run(line), 0) << text(output());
  EXPECT_EQ(get("app.ini"), "[cache]\ncache_limit = 40\n");
  ASSERT_EQ(second.requests().size(), 2u);
  EXPECT_EQ(second.requests()[0]["messages"].size(), 4u);
  EXPECT_EQ(first.requests().size(), 5u);  // one answer, and four tries
}

TEST_F(Agent, a_key_or_a_name_that_is_not_accepted_ends_it_at_once_with_what_to_do) {
  const std::map<int, std::string> hints = {{401, "TANDEM_API_KEY"}, {404, "--model-name"}};
  for (const auto& [status, hint] : hints) {
    ScriptedServer server;
    server.answer({status, {}, R"({"error":{"message":"not )" + kAgentKey + R"("}})"});
    EXPECT_EQ(run(with(server)), 1);
    EXPECT_THAT(text(output()), HasSubstr("status " + std::to_string(status) + ": not [key]"));
    EXPECT_THAT(text(output()), HasSubstr(hint));
    EXPECT_EQ(server.requests().size(), 1u);
  }
}

TEST_F(Agent, an_account_without_credit_and_a_server_that_moved_are_told_and_not_asked_again) {
  ScriptedServer server;
  server.answer({429, {}, R"({"error":{"message":"You exceeded your quota","type":"insufficient_quota"}})"});
  EXPECT_EQ(run(with(server)), 1);
  EXPECT_THAT(text(output()), HasSubstr("status 429: You exceeded your quota"));
  EXPECT_THAT(text(output()), HasSubstr("no credit left"));
  server.answer({308, {{"Location", "http://127.0.0.1:9/v2/chat/completions"}}, ""});
  EXPECT_EQ(run(with(server)), 1);
  EXPECT_THAT(text(output()), HasSubstr("the server is at http://127.0.0.1:9/v2/chat/completions"));
  EXPECT_EQ(server.requests().size(), 2u);
}

TEST_F(Agent, options_that_a_server_does_not_know_are_left_out_and_plain_json_is_an_answer) {
  ScriptedServer server;
  server.answer({400, {}, R"({"error":{"message":"unknown field stream_options"}})"});
  server.answer({400, {}, R"({"error":{"message":"stream is not supported with tools"}})"});
  server.whole("", {edit("c1", "app.ini", "20", "40")});
  server.whole("Done.");
  ASSERT_EQ(run(with(server)), 0) << text(output());
  const auto requests = server.requests();
  ASSERT_EQ(requests.size(), 4u);
  EXPECT_FALSE(requests[1].contains("stream_options"));
  EXPECT_FALSE(requests[2].contains("stream"));
  EXPECT_EQ(get("app.ini"), "[cache]\ncache_limit = 40\n");
}

TEST_F(Agent, malformed_arguments_are_told_to_the_model_and_a_refused_call_is_a_result) {
  ScriptedServer server;
  server.stream("Oops.", {ScriptedServer::call("c1", "read_file", Json("{\"target_file\": ")),
                          ScriptedServer::call("c2", "read_file", {{"file", "app.ini"}}),
                          ScriptedServer::call("c3", "fly", Json::object())});
  server.stream("I give up.");
  ASSERT_EQ(run(with(server, {"--json"})), 0) << text(output());
  const auto messages = server.requests().at(1)["messages"];
  EXPECT_THAT(messages[3]["content"].get<std::string>(), HasSubstr("not valid JSON"));
  EXPECT_THAT(messages[4]["content"].get<std::string>(), HasSubstr("target_file"));
  EXPECT_THAT(messages[5]["content"].get<std::string>(), HasSubstr("fly"));
  EXPECT_EQ(end()["answer"], "I give up.");
  EXPECT_EQ(events("result").size(), 3u);
  EXPECT_EQ(events("result")[0]["ok"], false);
}

TEST_F(Agent, the_transcript_is_atif_and_nothing_written_down_has_the_key) {
  ScriptedServer server;
  script_an_edit(server);
  const auto file = root() / "transcript.json";
  ASSERT_EQ(run(with(server, {"--transcript", file.string()})), 0) << text(output());
  const auto atif = json(file);
  EXPECT_EQ(atif["schema_version"], "ATIF-v1.7");
  ASSERT_EQ(atif["steps"].size(), 4u);
  EXPECT_EQ(atif["steps"][2]["tool_calls"][0]["function_name"], "search_replace");
  EXPECT_EQ(atif["steps"][2]["observation"]["results"][0]["source_call_id"], "c1");
  EXPECT_EQ(atif["steps"][3]["message"], "Done.");
  EXPECT_THAT(text(file), Not(HasSubstr(kAgentKey)));
  for (const auto& entry : fs::recursive_directory_iterator(root() / "state")) {
    const auto held = entry.is_regular_file() ? text(entry.path()) : std::string();
    EXPECT_THAT(held, Not(HasSubstr(kAgentKey)));
  }
}

TEST_F(Agent, a_conversation_that_outgrows_its_profile_is_summed_up_by_the_server_and_begins_anew) {
  ScriptedServer server;
  server.whole("I look.", {ScriptedServer::call("c1", "read_file", {{"target_file", "app.ini"}})}, 700);
  server.whole("The limit is 20; it must be 40.", {}, 900);
  server.whole("I change it.", {edit("c2", "app.ini", "cache_limit = 20", "cache_limit = 40")}, 100);
  server.whole("Done.", {}, 150);
  const fs::path profile = root() / "long.yaml", transcript = root() / "summed.json";
  ASSERT_TRUE(write_file(profile,
                         "version: 1\ntools: [read_file, search_replace]\n"
                         "compaction: {at: 600, request: Sum up., heading: 'So far:'}\n"));
  ASSERT_EQ(run(with(server, {"--profile", profile.string(), "--yes", "--transcript", transcript.string()})), 0)
      << text(output());
  EXPECT_EQ(get("app.ini"), "[cache]\ncache_limit = 40\n");
  const auto requests = server.requests();
  ASSERT_EQ(requests.size(), 4u);
  const auto last_of = [&](size_t request) { return requests[request]["messages"].back(); };
  EXPECT_EQ(last_of(1)["content"], "Sum up.");
  const auto task = requests[0]["messages"].back()["content"].get<std::string>();
  EXPECT_EQ(requests[2]["messages"].size(), requests[0]["messages"].size()) << "nothing else stays";
  EXPECT_EQ(last_of(2)["content"], task + "\n\nSo far:\nThe limit is 20; it must be 40.");
  EXPECT_EQ(last_of(3)["role"], "tool");
  EXPECT_NE(text(output()).find("the conversation has 705 tokens: it is summed up"), std::string::npos);
  const Json steps = json(transcript)["steps"];
  EXPECT_TRUE(std::ranges::any_of(steps, [](const Json& step) {
    return step.contains("extra") && step["extra"].value("summary", "") == "The limit is 20; it must be 40.";
  }));
}

// As with our own engine: a model that was trained to call may answer with a call.
TEST_F(Agent, a_summary_of_calls_alone_is_those_calls_and_they_are_not_run) {
  ScriptedServer server;
  server.whole("I look.", {ScriptedServer::call("c1", "read_file", {{"target_file", "app.ini"}})}, 700);
  server.whole("", {ScriptedServer::call("c2", "write", {{"file_path", "no"}})}, 900);
  server.whole("Done.", {}, 150);
  const fs::path profile = root() / "called.yaml";
  ASSERT_TRUE(write_file(
      profile, "version: 1\ntools: [read_file, write]\ncompaction: {at: 600, request: Sum up., heading: 'So far:'}\n"));
  ASSERT_EQ(run(with(server, {"--profile", profile.string(), "--yes"})), 0) << text(output());
  const auto requests = server.requests();
  ASSERT_EQ(requests.size(), 3u);
  const auto task = requests[0]["messages"].back()["content"].get<std::string>();
  const auto next = requests[2]["messages"].back()["content"].get<std::string>();
  ASSERT_TRUE(next.starts_with(task + "\n\nSo far:\n")) << next;
  const auto call = parse_json(next.substr(task.size() + 10));
  ASSERT_TRUE(call) << next;
  EXPECT_EQ((*call)["name"], "write");
  EXPECT_EQ((*call)["arguments"]["file_path"], "no");
  EXPECT_FALSE(fs::exists(folder() / "no"));
}

TEST_F(Agent, where_a_change_is_the_end_no_further_turn_is_asked_for) {
  ScriptedServer server;
  server.stream("I look.", {ScriptedServer::call("c1", "read_file", {{"target_file", "app.ini"}})});
  server.stream("I change it.", {edit("c2", "app.ini", "20", "40")});
  EXPECT_EQ(run(with(server, {"--end-on-change", "--json"})), 0) << text(output());
  EXPECT_EQ(server.requests().size(), 2u);
  EXPECT_EQ(end()["end"], "changed");
  EXPECT_EQ(get("app.ini"), "[cache]\ncache_limit = 40\n");
}

TEST_F(Agent, what_is_wrong_with_the_command_line_is_said_at_once) {
  const std::vector<std::pair<Arguments, std::string>> wrong = {
      {{"Do it."}, "give --model DIR, or --endpoint URL"},
      {{"--endpoint", "http://127.0.0.1:1", "Do it."}, "--model-name"},
      {{"--endpoint", "ftp://127.0.0.1:1", "--model-name", "m", "Do it."}, "neither http"},
      {{"--endpoint", "http://127.0.0.1:1", "--model-name", "m"}, "say what is to be done"},
      {{"--endpoint", "http://127.0.0.1:1", "--model-name", "m", "--trajectory", "t", "Do it."},
       "--trajectory needs --model"},
      {{"--endpoint", "http://127.0.0.1:1", "--model-name", "m", "--exclude", "[", "Do it."}, "--exclude"},
      {{"--model", "/nowhere", "--endpoint", "http://127.0.0.1:1", "Do it."}, "--model excludes --endpoint"},
  };
  // Bounds that nobody would read are no help.
  for (const auto& arguments : {Arguments{"--time-limit", "0", "Do it."}, Arguments{"--minutes", "0", "Do it."}}) {
    EXPECT_EQ(run(command(arguments)), 2);
    EXPECT_THAT(text(output()), testing::ContainsRegex("0 not in range .{1,40}\n"));
  }
  for (const auto& [arguments, words] : wrong) {
    EXPECT_EQ(run(command(arguments)), 2) << words;
    EXPECT_THAT(text(output()), HasSubstr(words));
  }
  EXPECT_EQ(run({TANDEM_BINARY, "agent", "--workspace", "/nowhere", "--undo"}), 2);
  // What undoing needs must not lie among the files that are changed.
  ScriptedServer server;
  EXPECT_EQ(Process(with(server), output(), {"XDG_STATE_HOME=" + folder().string()}).wait(), 2);
  EXPECT_THAT(text(output()), HasSubstr("XDG_STATE_HOME"));
}

// The tiny model knows one kind of task: its prompt, call for call, is that of a rollout.
TEST_F(Agent, our_own_engine_says_the_tokens_that_a_rollout_would_and_they_are_all_written_down) {
  const auto task = envs::make_task({"echo", envs::Split::kTrain, 3});
  ASSERT_TRUE(task);
  fs::remove_all(folder());
  fs::create_directories(folder());
  for (const auto& [name, content] : task->files) put(name, content);
  const auto model = (root() / "model").string();
  const auto transcript = root() / "transcript.json", trajectories = root() / "trajectories";
  fs::remove_all(trajectories);
  const int code =
      run(command({"--model", model, "--max-turns", "2", "--max-tokens", "96", "--dry-run", "--json", "--transcript",
                   transcript.string(), "--trajectory", trajectories.string(), task->instruction}));
  EXPECT_TRUE(code == 0 || code == 1) << text(output());
  ASSERT_FALSE(events("call").empty()) << text(output());
  EXPECT_TRUE(events("result").at(0)["ok"].get<bool>()) << text(output());

  const auto atif = json(transcript);
  ASSERT_GE(atif["steps"].size(), 3u);
  const auto prompt = envs::opening(*task, envs::prompted_tools(), {}, envs::ToolListing::kInMessages).messages;
  EXPECT_EQ(atif["steps"][0]["message"], prompt[0].content);
  EXPECT_EQ(atif["steps"][1]["message"], prompt[1].content);
  const auto& metrics = atif["steps"][2]["metrics"];

  // `tandem generate` samples the same tokens with the same log-probabilities from the same prompt.
  std::ofstream(root() / "line")
      << Json{{"tokens", metrics["prompt_token_ids"]}, {"temperature", 0}, {"max_tokens", 96}}.dump() << "\n";
  ASSERT_EQ(tandem({"generate", "--model", model, "--input", (root() / "line").string()}), 0);
  const auto generated = parse_json(trim(text(output())));
  ASSERT_TRUE(generated);
  EXPECT_EQ((*generated)["tokens"], metrics["completion_token_ids"]);
  EXPECT_EQ((*generated)["logprobs"].get<std::vector<float>>(), metrics["logprobs"].get<std::vector<float>>());

  // What the model said is in the next prompt as it was sampled, and all of it is in the trajectory.
  const auto store = rollout::TrajectoryStore::open_to_read(trajectories);
  ASSERT_TRUE(store);
  const auto trajectory = store->read({1, 1});
  ASSERT_TRUE(trajectory);
  const auto first_prompt = metrics["prompt_token_ids"].get<std::vector<int32_t>>();
  const auto said = metrics["completion_token_ids"].get<std::vector<int32_t>>();
  ASSERT_GE(trajectory->tokens.size(), first_prompt.size() + said.size());
  for (size_t i = 0; i < trajectory->tokens.size(); ++i) {
    if (i < first_prompt.size()) {
      EXPECT_EQ(trajectory->tokens[i], first_prompt[i]);
    } else if (i < first_prompt.size() + said.size()) {
      EXPECT_EQ(trajectory->tokens[i], said[i - first_prompt.size()]);
      EXPECT_EQ(trajectory->sampled[i], 1);
    }
  }
  expect_nothing_left(folder());
}

}  // namespace
}  // namespace tandem
