// What `tandem agent` does to the files of its user's folder: written, undone, asked about first, left after an end.
#include <gmock/gmock.h>

#include "tests/cli/agent_fixture.h"
#include "tests/envs/sandbox_fixture.h"

namespace tandem {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;
using testing::Not;

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
    EXPECT_TRUE(within(60s, [&] { return running(mark) == 0; }));
    for (const pid_t child : children) EXPECT_TRUE(within(60s, [&] { return envs::is_gone(child); }));
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

}  // namespace
}  // namespace tandem
