// `tandem agent` as its users meet it: the binary itself, on folders of theirs, with a model in the process or servers.
#include <gmock/gmock.h>

#include <fstream>
#include <map>

#include "envs/episodes/opening.h"
#include "envs/tasks/workspace/kinds.h"
#include "rollout/books/trajectory.h"
#include "tests/cli/run_fixture.h"
#include "tests/cli/scripted_server.h"
#include "tests/envs/sandbox_fixture.h"

namespace tandem {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;
using testing::Not;

const std::string kKey = "secret-key-of-the-test";

class Agent : public RunTest {
 protected:
  void SetUp() override {
    ASSERT_FALSE(testing::Test::HasFatalFailure());
    fs::remove_all(root() / "work");
    fs::remove_all(root() / "state");
    put("app.ini", "[cache]\ncache_limit = 20\n");
    put("notes/a.txt", "alpha\n");
    put("notes/b.txt", "beta\n");
  }
  static fs::path folder() { return root() / "work"; }
  static void put(const std::string& name, const std::string& content) {
    fs::create_directories((folder() / name).parent_path());
    std::ofstream(folder() / name, std::ios::binary) << content;
  }
  static std::string get(const std::string& name) { return text(folder() / name); }
  static std::vector<std::string> environment() {
    return {"XDG_STATE_HOME=" + (root() / "state").string(), "TANDEM_API_KEY=" + kKey, "no_proxy=127.0.0.1"};
  }
  static Arguments command(Arguments more) {
    more.insert(more.begin(), {TANDEM_BINARY, "agent", "--workspace", folder().string()});
    return more;
  }
  static Arguments with(const ScriptedServer& server, Arguments more = {}) {
    more.insert(more.begin(), {"--model-name", "m", "--endpoint", server.url(), "Do it."});
    return command(std::move(more));
  }
  static int run(const Arguments& arguments) { return Process(arguments, output(), environment()).wait(); }
  // Lines of --json by their event.
  static std::vector<Json> events(const std::string& kind = "") {
    std::vector<Json> found;
    const auto all = text(output());
    for (const auto line : split(trim(all), '\n')) {
      const auto json = parse_json(line);
      if (json && json->is_object() && (kind.empty() || json->value("event", "") == kind)) found.push_back(*json);
    }
    return found;
  }
  static Json end() { return events("end").empty() ? Json(Json::object()) : events("end").back(); }
  static Json edit(const std::string& id, const std::string& file, const std::string& from, const std::string& to) {
    return ScriptedServer::call(id, "search_replace", {{"file_path", file}, {"old_string", from}, {"new_string", to}});
  }
  static void script_an_edit(ScriptedServer& server) {
    server.stream("I change it.", {edit("c1", "app.ini", "cache_limit = 20", "cache_limit = 40")});
    server.stream("Done.");
  }
  // Processes of the sandbox that run a command with this mark.
  static size_t running(const std::string& mark) {
    size_t count = 0;
    for (const auto& entry : fs::directory_iterator("/proc")) {
      const auto line = text(entry.path() / "cmdline");
      count += line.starts_with("sleep") && line.find(mark) != std::string::npos;
    }
    return count;
  }
};

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
  EXPECT_EQ(server.header(0, "authorization"), "Bearer " + kKey);
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

TEST_F(Agent, what_was_written_is_taken_back_by_undo_and_only_once) {
  ScriptedServer server;
  script_an_edit(server);
  ASSERT_EQ(run(with(server)), 0) << text(output());
  put("notes/a.txt", "of somebody\n");
  ASSERT_EQ(run(command({"--undo", "--dry-run"})), 0) << text(output());
  EXPECT_THAT(text(output()), HasSubstr("Nothing was taken back: this was a dry run."));
  ASSERT_EQ(run(command({"--undo"})), 0) << text(output());
  EXPECT_EQ(get("app.ini"), "[cache]\ncache_limit = 20\n");
  EXPECT_EQ(get("notes/a.txt"), "of somebody\n");
  EXPECT_EQ(run(command({"--undo"})), 1);
  EXPECT_THAT(text(output()), HasSubstr("nothing that an agent wrote"));
}

TEST_F(Agent, undo_leaves_what_was_changed_since_and_keeps_the_rest_for_another_try) {
  ScriptedServer server;
  script_an_edit(server);
  ASSERT_EQ(run(with(server)), 0);
  put("app.ini", "of somebody\n");
  EXPECT_EQ(run(command({"--undo"})), 1);
  EXPECT_EQ(get("app.ini"), "of somebody\n");
  put("app.ini", "[cache]\ncache_limit = 40\n");
  EXPECT_EQ(run(command({"--undo", "--json"})), 0);
  EXPECT_EQ(events("undo").at(0)["changes"][0]["outcome"], "written");
  EXPECT_EQ(get("app.ini"), "[cache]\ncache_limit = 20\n");
}

TEST_F(Agent, review_asks_first_and_a_dry_run_never_writes) {
  for (const std::string answer : {"n\n", "", "y\n"}) {
    ScriptedServer server;
    script_an_edit(server);
    auto line = with(server, {"--review"});
    std::string shell = "printf '" + answer + "' |";
    for (const auto& word : line) shell += " '" + word + "'";
    ASSERT_EQ(run({"/bin/sh", "-c", shell}), 0) << text(output());
    EXPECT_THAT(text(output()), HasSubstr("Write this back? [y/N]"));
    EXPECT_EQ(get("app.ini").find("40") != std::string::npos, answer == "y\n");
  }
  put("app.ini", "[cache]\ncache_limit = 20\n");
  ScriptedServer server;
  script_an_edit(server);
  ASSERT_EQ(run(with(server, {"--dry-run", "--json"})), 0);
  EXPECT_EQ(get("app.ini"), "[cache]\ncache_limit = 20\n");
  EXPECT_THAT(end()["diff"].get<std::string>(), HasSubstr("+cache_limit = 40"));
  EXPECT_TRUE(end()["changes"][0]["outcome"].is_null());
}

TEST_F(Agent, file_by_file_only_those_that_are_wanted_are_written) {
  ScriptedServer server;
  server.stream("Both.", {edit("c1", "app.ini", "20", "40"), edit("c2", "notes/a.txt", "alpha", "omega")});
  server.stream("Done.");
  std::string shell = "printf 'f\\nn\\ny\\n' |";
  for (const auto& word : with(server, {"--review"})) shell += " '" + word + "'";
  ASSERT_EQ(run({"/bin/sh", "-c", shell}), 0) << text(output());
  EXPECT_EQ(get("app.ini"), "[cache]\ncache_limit = 20\n");
  EXPECT_EQ(get("notes/a.txt"), "omega\n");
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
    server.answer({status, {}, R"({"error":{"message":"not )" + kKey + R"("}})"});
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
  EXPECT_THAT(text(file), Not(HasSubstr(kKey)));
  for (const auto& entry : fs::recursive_directory_iterator(root() / "state")) {
    const auto held = entry.is_regular_file() ? text(entry.path()) : std::string();
    EXPECT_THAT(held, Not(HasSubstr(kKey)));
  }
}

TEST_F(Agent, what_an_agent_leaves_that_does_not_come_to_its_end_is_written_for_who_says_yes_alone) {
  for (const bool yes : {false, true}) {
    ScriptedServer server;
    server.stream("I change it.", {edit("c1", "app.ini", "20", "40")});
    Arguments more = {"--max-turns", "1"};
    if (yes) more.emplace_back("--yes");
    EXPECT_EQ(run(with(server, more)), 1);
    EXPECT_THAT(text(output()), HasSubstr("its one turn is over"));
    EXPECT_EQ(get("app.ini").find("40") != std::string::npos, yes);
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

TEST_F(Agent, a_file_that_somebody_changed_meanwhile_is_a_conflict_and_is_left) {
  ScriptedServer server;
  const std::string mark = "8641" + std::to_string(::getpid());
  server.stream("Wait.", {edit("c1", "app.ini", "20", "40"), edit("c2", "notes/a.txt", "alpha", "omega")});
  server.stream("And wait.", {ScriptedServer::call("c3", "run_terminal_cmd", {{"command", "sleep " + mark}})});
  server.stream("Done.");
  Process process(with(server, {"--json"}), output(), environment());
  ASSERT_TRUE(within(60s, [&] { return running(mark) > 0; })) << text(output());
  put("app.ini", "of somebody\n");
  for (const auto& entry : fs::directory_iterator("/proc")) {
    const auto line = text(entry.path() / "cmdline");
    if (line.starts_with("sleep") && line.find(mark) != std::string::npos)
      ::kill(std::atoi(entry.path().filename().c_str()), SIGKILL);
  }
  EXPECT_EQ(process.wait(), 1) << text(output());
  EXPECT_EQ(get("app.ini"), "of somebody\n");
  EXPECT_EQ(get("notes/a.txt"), "omega\n");
  std::vector<std::string> outcomes;
  const Json last = end();
  for (const auto& change : last["changes"]) outcomes.push_back(change["outcome"].get<std::string>());
  EXPECT_THAT(outcomes, ElementsAre("conflict", "written"));
}

TEST_F(Agent, a_folder_larger_than_any_copy_is_worked_on_as_it_is) {
  put("data/large.bin", "");
  fs::resize_file(folder() / "data/large.bin", uint64_t{3} << 30);  // takes no room
  put("keys/private.pem", "secret\n");
  ScriptedServer server;
  server.stream("I look.", {ScriptedServer::call("c1", "run_terminal_cmd",
                                                 {{"command",
                                                   "stat -c %s data/large.bin; ls keys; "
                                                   "echo over >> data/large.bin || echo no room"}})});
  script_an_edit(server);
  const int code = run(with(server, {"--json", "--exclude", "*.pem"}));
  const auto begun = events("begin");
  ASSERT_EQ(begun.size(), 1u) << text(output());
  if (begun[0]["copied"] == true || code == 2) GTEST_SKIP() << "no overlays here: " << begun[0]["note"];
  ASSERT_EQ(code, 0) << text(output());
  EXPECT_EQ(begun[0]["files"], 4);
  EXPECT_EQ(begun[0]["note"], "");
  const auto results = events("result");
  ASSERT_FALSE(results.empty());
  EXPECT_THAT(results[0]["output"].get<std::string>(), testing::StartsWith("3221225472\n"));
  EXPECT_THAT(results[0]["output"].get<std::string>(), Not(HasSubstr("private.pem")));
  EXPECT_EQ(get("app.ini"), "[cache]\ncache_limit = 40\n");
  EXPECT_EQ(get("keys/private.pem"), "secret\n");
  EXPECT_EQ(fs::file_size(folder() / "data/large.bin"), uint64_t{3} << 30);
  EXPECT_EQ(end()["changes"].size(), 1u);
}

TEST_F(Agent, an_interrupt_ends_the_running_call_shows_the_changes_and_leaves_nothing_behind) {
  for (const bool in_a_call : {true, false}) {
    ScriptedServer server;
    const std::string mark = "8642" + std::to_string(::getpid());
    server.stream("First.", {edit("c1", "app.ini", "20", "40")});
    if (in_a_call) {
      server.stream("Then.", {ScriptedServer::call("c2", "run_terminal_cmd", {{"command", "sleep " + mark}})});
    } else {
      server.answer({ScriptedServer::kNever, {}, ""});
    }
    Process process(with(server, {"--json"}), output(), environment());
    ASSERT_TRUE(within(60s, [&] { return in_a_call ? running(mark) > 0 : server.requests().size() == 2; }))
        << text(output());
    const auto children = envs::children_of(process.pid());
    process.signal(SIGINT);
    EXPECT_EQ(process.wait(), 75) << text(output());
    EXPECT_EQ(end()["end"], "interrupted");
    EXPECT_THAT(end()["diff"].get<std::string>(), HasSubstr("+cache_limit = 40"));
    EXPECT_EQ(get("app.ini"), "[cache]\ncache_limit = 20\n");
    EXPECT_TRUE(within(10s, [&] { return running(mark) == 0; }));
    for (const pid_t child : children) EXPECT_TRUE(within(10s, [&] { return envs::is_gone(child); }));
    expect_nothing_left(folder());
  }
}

TEST_F(Agent, a_second_interrupt_ends_it_at_once) {
  ScriptedServer server;
  server.stream("First.", {edit("c1", "app.ini", "20", "40")});
  server.stream("Done.");
  // The question whether to write back waits for an answer that does not come.
  int ends[2];
  ASSERT_EQ(::pipe(ends), 0);
  const int input = ::dup(STDIN_FILENO);
  ::dup2(ends[0], STDIN_FILENO);
  Process process(with(server, {"--review"}), output(), environment());
  ::dup2(input, STDIN_FILENO);
  ::close(input);
  ASSERT_TRUE(within(60s, [&] { return text(output()).find("[y/N]") != std::string::npos; }));
  process.signal(SIGINT);
  EXPECT_EQ(process.wait(), 75) << text(output());
  EXPECT_EQ(get("app.ini"), "[cache]\ncache_limit = 20\n");
  ::close(ends[0]);
  ::close(ends[1]);

  server.answer({ScriptedServer::kNever, {}, ""});
  Process other(with(server), output(), environment());
  ASSERT_TRUE(within(60s, [&] { return server.requests().size() == 3; }));
  // Before the process has had the time to end: a signal that comes twice at once may count once.
  EXPECT_TRUE(within(60s, [&] {
    other.signal(SIGINT);
    return !other.running();
  }));
  EXPECT_EQ(get("app.ini"), "[cache]\ncache_limit = 20\n");
  expect_nothing_left(folder());
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
