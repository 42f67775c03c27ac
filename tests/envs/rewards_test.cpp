// Rewards of the user's own: what programs and servers are given, what they may answer, and what becomes of those that
// fail.
#include "envs/rewards/rewards.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "envs/episodes/episode.h"
#include "envs/server/session_record.h"
#include "tests/cli/scripted_server.h"
#include "tests/envs/sandbox_fixture.h"
#include "tests/envs/scratch.h"

namespace tandem::envs {
namespace {

using testing::HasSubstr;

PlayedEpisode an_episode() {
  PlayedEpisode episode{.task = "notes/one", .kind = "notes", .split = "train", .instruction = "Write a note."};
  episode.messages.push_back({{"role", "user"}, {"content", "Write a note."}});
  episode.messages.push_back({{"role", "assistant"}, {"content", "I wrote it."}});
  episode.before = {{"kept.txt", "same"}, {"old.txt", "old"}, {"gone.txt", "gone"}};
  episode.after = {{"kept.txt", "same"}, {"old.txt", "new"}, {"note.txt", "hello"}};
  episode.reward = 1;
  episode.terms = {{"files", 1}};
  return episode;
}

RewardSettings beside_the_server(const std::string& command) {
  RewardSettings settings;
  settings.command = command;
  settings.place = "server";
  settings.retries = 0;
  settings.seconds = 60;
  return settings;
}

std::shared_ptr<Rewards> rewards_with(const RewardSettings& settings, std::set<std::string> wanted,
                                      const fs::path& folder = "/tmp") {
  static const SystemClock clock;
  auto made = rewards_of(settings, std::move(wanted), folder, clock);
  EXPECT_TRUE(made.has_value()) << made.error().to_string();
  return made.value_or(nullptr);
}

Result<RewardAnswer> answer_of(const RewardSettings& settings, const std::set<std::string>& wanted = {}) {
  return rewards_with(settings, wanted)->score(an_episode(), {});
}

TEST(RewardAnswers, what_is_no_answer_is_refused_in_words) {
  const std::pair<std::string, std::string> cases[] = {
      {"", "answered nothing"},
      {"great", "no JSON"},
      {"0.5", "without terms"},
      {R"({"terms": 1})", "without terms"},
      {R"({"terms": {"a": NaN}})", "no JSON"},
      {R"({"terms": {"a": 1e999}})", "no JSON"},
      {R"({"terms": {"a": 1e300}})", "must be within"},
      {R"({"terms": {"a": "1"}})", "the term a is string"},
      {R"({"terms": {"a b": 1}})", "no name of a term"},
      {R"({"terms": {"a": 1}, "turn": [1]})", "did you mean \"turns\""},
      {R"({"terms": {"a": 1}, "turns": [1, 2]})", "a list of 1 numbers"},
      {R"({"terms": {"a": 1}, "turns": [null]})", "turn 0 is null"},
      {"{\"terms\": {\"\xff\": 1}}", "no JSON"},
  };
  for (const auto& [text, words] : cases) {
    const auto answer = read_reward_answer(text, 1);
    ASSERT_FALSE(answer.has_value()) << text;
    EXPECT_EQ(answer.error().code(), Code::kCorrupt) << text;
    EXPECT_THAT(answer.error().message(), HasSubstr(words)) << text;
  }
}

TEST(RewardAnswers, terms_and_turns_are_read) {
  const auto answer = read_reward_answer(" {\"terms\": {\"style\": 0.5, \"len\": -2}, \"turns\": [0.25]}\n", 1);
  ASSERT_TRUE(answer.has_value()) << answer.error().to_string();
  EXPECT_EQ(answer->terms, (std::map<std::string, double>{{"len", -2}, {"style", 0.5}}));
  EXPECT_EQ(answer->turns, std::vector<double>{0.25});
}

TEST(PlayedEpisodes, say_what_changed_and_leave_out_what_is_large_or_no_text) {
  auto episode = an_episode();
  episode.after["binary"] = "\xff\xfe";
  episode.after["large"] = std::string(100'000, 'x');
  const auto text = to_json_text(episode);
  ASSERT_TRUE(text.has_value());
  const Json files = parse_json(*text)->at("files");
  std::map<std::string, Json> by_path;
  for (const Json& file : files) by_path[file.at("path").get<std::string>()] = file;
  EXPECT_EQ(by_path.size(), 5U);
  EXPECT_EQ(by_path["note.txt"], (Json{{"path", "note.txt"}, {"change", "added"}, {"after", "hello"}}));
  EXPECT_EQ(by_path["old.txt"],
            (Json{{"path", "old.txt"}, {"change", "modified"}, {"before", "old"}, {"after", "new"}}));
  EXPECT_EQ(by_path["gone.txt"], (Json{{"path", "gone.txt"}, {"change", "deleted"}, {"before", "gone"}}));
  EXPECT_EQ(by_path["binary"].value("binary", false), true);
  EXPECT_EQ(by_path["large"].value("left_out", false), true);
  EXPECT_EQ(*text, *to_json_text(episode));
}

TEST(PlayedEpisodes, too_large_a_one_is_refused) {
  auto episode = an_episode();
  episode.messages.push_back({{"role", "tool"}, {"content", std::string(kLargestPlayedEpisode, 'x')}});
  EXPECT_EQ(to_json_text(episode).error().code(), Code::kExhausted);
}

TEST(RewardWeights, are_read_or_refused_by_entry) {
  EXPECT_EQ(*parse_reward_weights({"style=0.5", "len=-2"}),
            (std::map<std::string, double>{{"len", -2}, {"style", 0.5}}));
  for (const char* entry : {"style", "=1", "style=", "style=much", "a b=1", "style=inf", "style=1e9"})
    EXPECT_THAT(parse_reward_weights({entry}).error().message(), HasSubstr(entry)) << entry;
  EXPECT_FALSE(parse_reward_weights({"a=1", "a=2"}).has_value());
}

TEST(RewardCommand, gets_the_episode_and_gives_its_terms) {
  Scratch folder;
  folder.put("count.py",
             "import json, sys\n"
             "e = json.load(sys.stdin)\n"
             "print(json.dumps({'terms': {'files': len(e['files']), 'reward': e['grade']['reward']}}))\n");
  auto settings = beside_the_server("python3 count.py");
  auto episode = an_episode();
  episode.terms.clear();
  episode.messages.push_back({{"role", "tool"}, {"content", std::string(200'000, 'x')}});  // more than a pipe holds
  const auto answer = rewards_with(settings, {"files"}, folder.path)->score(episode, {});
  ASSERT_TRUE(answer.has_value()) << answer.error().to_string();
  EXPECT_EQ(answer->terms, (std::map<std::string, double>{{"files", 3}, {"reward", 1}}));
}

TEST(RewardCommand, that_fails_is_an_error_that_names_it) {
  struct Case {
    const char* command;
    Code code;
    const char* words;
  };
  const Case cases[] = {
      {"echo broken >&2; exit 3", Code::kUnavailable, "ended with exit code 3: broken"},
      {"kill -9 $$", Code::kUnavailable, "exit code 137"},
      {"no-such-program", Code::kUnavailable, "exit code 127"},
      {"true", Code::kCorrupt, "answered nothing"},
      {"echo '{\"terms\": {\"a\": NaN}}'", Code::kCorrupt, "no JSON"},
      {"printf '{\"terms\": {\"\\377\": 1}}'", Code::kCorrupt, "no JSON"},
      {"yes", Code::kDeadline, "did not answer within 2 s"},
      {"head -c 200000 /dev/zero", Code::kCorrupt, "more than 65536 bytes"},
  };
  for (const auto& [command, code, words] : cases) {
    auto settings = beside_the_server(command);
    settings.seconds = code == Code::kDeadline ? 2 : 60;
    const auto answer = answer_of(settings);
    ASSERT_FALSE(answer.has_value()) << command;
    EXPECT_EQ(answer.error().code(), code) << command;
    EXPECT_THAT(answer.error().message(), HasSubstr("reward.command: ")) << command;
    EXPECT_THAT(answer.error().message(), HasSubstr(words)) << command;
  }
}

// A log is read in a terminal, which obeys what is written to it.
TEST(RewardCommand, control_bytes_of_what_it_says_do_not_reach_a_log) {
  const auto answer = answer_of(beside_the_server("printf '\\033[2J\\033]0;title\\007bad\\bness\\n' >&2; exit 1"));
  ASSERT_FALSE(answer.has_value());
  const Status& status = answer.error();
  EXPECT_THAT(status.message(), HasSubstr("ended with exit code 1"));
  EXPECT_THAT(status.message(), HasSubstr("ness"));
  for (const char c : status.message()) EXPECT_GE(static_cast<unsigned char>(c), 0x20) << status.message();
}

TEST(RewardCommand, that_does_not_end_is_ended_with_what_it_started) {
  Scratch folder;
  auto settings = beside_the_server("sleep 1000 & echo $! > child; wait");
  settings.seconds = 10;
  EXPECT_EQ(rewards_with(settings, {}, folder.path)->score(an_episode(), {}).error().code(), Code::kDeadline);
  const pid_t child = atoi(folder.get("child").c_str());
  ASSERT_GT(child, 0);
  EXPECT_TRUE(within(std::chrono::seconds(60), [&] { return is_gone(child); }));
}

TEST(RewardCommand, is_asked_again_where_it_failed) {
  Scratch folder;
  auto settings = beside_the_server("echo x >> tries; test $(wc -l < tries) = 3 && echo '{\"terms\": {\"a\": 1}}'");
  settings.retries = 2;
  const auto rewards = rewards_with(settings, {"a"}, folder.path);
  const auto answer = rewards->score(an_episode(), {});
  ASSERT_TRUE(answer.has_value()) << answer.error().to_string();
  EXPECT_EQ(rewards->counters().asked, 3U);
  EXPECT_EQ(rewards->counters().answered, 1U);
  EXPECT_EQ(rewards->counters().failed, 0U);
}

TEST(RewardCommand, is_not_asked_about_an_equal_episode_again) {
  Scratch folder;
  auto settings = beside_the_server("echo x >> tries; echo \"{\\\"terms\\\": {\\\"a\\\": $(wc -l < tries)}}\"");
  settings.cache = 2;
  const auto rewards = rewards_with(settings, {"a"}, folder.path);
  const auto term_of = [&](const char* task) {
    auto episode = an_episode();
    episode.task = task;
    return rewards->score(episode, {})->terms.at("a");
  };
  EXPECT_EQ(term_of("one"), 1);
  EXPECT_EQ(term_of("one"), 1);
  EXPECT_EQ(term_of("two"), 2);
  EXPECT_EQ(term_of("one"), 1);
  EXPECT_EQ(term_of("three"), 3);  // in the place of two, which was used least
  EXPECT_EQ(term_of("one"), 1);
  EXPECT_EQ(term_of("two"), 4);
  EXPECT_EQ(rewards->counters().cached, 3U);
}

TEST(RewardCommand, a_term_that_is_missing_or_the_graders_own_is_an_error) {
  EXPECT_THAT(answer_of(beside_the_server("echo '{\"terms\": {\"a\": 1}}'"), {"style"}).error().message(),
              HasSubstr("nobody said the term style"));
  EXPECT_THAT(answer_of(beside_the_server("echo '{\"terms\": {\"files\": 1}}'")).error().message(),
              HasSubstr("files is one of the task's own"));
}

TEST(RewardCommand, more_than_may_be_asked_at_once_wait) {
  Scratch folder;
  // Fails where another one of it is on.
  auto settings = beside_the_server("mkdir only && sleep 0.05 && rmdir only && echo '{\"terms\": {\"a\": 1}}'");
  settings.concurrency = 1;
  settings.seconds = 60;
  settings.cache = 0;
  const auto rewards = rewards_with(settings, {"a"}, folder.path);
  std::atomic<int> answered{0};
  {
    std::vector<std::jthread> threads;
    for (int i = 0; i < 6; ++i) threads.emplace_back([&] { answered += rewards->score(an_episode(), {}).has_value(); });
  }
  EXPECT_EQ(answered, 6);
}

TEST(RewardHttp, gets_the_same_json_and_its_key) {
  ScriptedServer server;
  server.answer({503, {}, "busy"});
  server.answer({200, {}, R"({"terms": {"style": 0.25}})"});
  Scratch folder;
  folder.put("key", "sesame\n");
  RewardSettings settings;
  settings.http = server.url() + "/score";
  settings.key_file = folder.path / "key";
  const auto answer = answer_of(settings, {"style"});
  ASSERT_TRUE(answer.has_value()) << answer.error().to_string();
  EXPECT_EQ(answer->terms.at("style"), 0.25);
  EXPECT_EQ(server.requests().at(1), *parse_json(*to_json_text(an_episode())));
  EXPECT_EQ(server.header(1, "authorization"), "Bearer sesame");
}

TEST(RewardHttp, that_refuses_for_good_is_not_asked_again_and_the_key_is_not_told) {
  ScriptedServer server;
  server.answer({401, {}, "no such key: sesame"});
  Scratch folder;
  folder.put("key", "sesame\n");
  RewardSettings settings;
  settings.http = server.url();
  settings.key_file = folder.path / "key";
  settings.retries = 3;
  const auto answer = answer_of(settings);
  ASSERT_FALSE(answer.has_value());
  EXPECT_EQ(answer.error().message(), "reward.http: answered 401: no such key: [key]");
  EXPECT_EQ(server.requests().size(), 1U);
}

TEST(RewardHttp, slow_dead_and_oversize_ones_are_errors) {
  ScriptedServer server;
  RewardSettings settings;
  settings.http = server.url();
  settings.retries = 0;
  settings.seconds = 1;
  server.answer({ScriptedServer::kNever, {}, ""});
  EXPECT_EQ(answer_of(settings).error().code(), Code::kDeadline);
  settings.seconds = 60;
  server.answer({ScriptedServer::kCut, {}, ""});
  EXPECT_FALSE(answer_of(settings).has_value());
  server.answer({200, {}, std::string(100'000, ' ') + R"({"terms": {"a": 1}})"});
  EXPECT_EQ(answer_of(settings).error().code(), Code::kExhausted);
}

class RewardInSandbox : public SandboxTest {
 protected:
  RewardInSandbox() {
    task_.name = "notes/one";
    task_.instruction = "Write a note.";
    task_.files = {{"old.txt", "old"}};
    task_.expectation.contains = {{"note.txt", "hello"}};
    options_.keep_left_behind = true;
  }
  // An attempt that leaves a note, graded with these rewards.
  Result<Grade> grade_with(const RewardSettings& settings, const std::set<std::string>& wanted) {
    const auto rewards = rewards_with(settings, wanted, folder_.path);
    auto episode = Episode::open(task_, *backend_, options_);
    if (!episode) return fail(episode.error());
    SessionRecord record;
    record.begin(**episode, (*episode)->opening(ToolListing::kByTemplate));
    const ParsedCall call{.call = {"write", {{"file_path", "note.txt"}, {"contents", "hello"}}}, .id = "1"};
    const auto outcomes = TRY((*episode)->turn({&call, 1}));
    record.turn({.text = "Writing.", .reasoning = "Hm.", .calls = {&call, 1}}, outcomes);
    record.answer({.text = "Done.", .reasoning = "", .calls = {}}, std::nullopt);
    return record.score(**episode, {.answer = "Done."}, rewards.get(), *backend_, options_);
  }
  Scratch folder_;
  Task task_;
  EpisodeOptions options_;
};

TEST_F(RewardInSandbox, a_command_sees_the_files_that_were_left_behind_and_its_own) {
  folder_.put("score.py",
              "import json, os, sys\n"
              "e = json.load(sys.stdin)\n"
              "note = open('/workspace/note.txt').read()\n"
              "said = [m['content'] for m in e['messages'] if m['role'] == 'assistant']\n"
              "print(json.dumps({'terms': {'letters': len(note), 'calls': len(e['calls']),\n"
              "  'graded': e['grade']['reward'], 'said': len(said), 'here': os.getcwd() == '/reward'},\n"
              "  'turns': [0.5, 0]}).replace('true', '1'))\n");
  RewardSettings settings;
  settings.command = "python3 score.py";
  settings.files = {"score.py"};
  const auto grade = grade_with(settings, {"letters"});
  ASSERT_TRUE(grade.has_value()) << grade.error().to_string();
  EXPECT_EQ(grade->reward, 1);
  EXPECT_EQ(grade->terms, (std::map<std::string, double>{{"contents", 1},
                                                         {"unread_calls", 0},
                                                         {"letters", 5},
                                                         {"calls", 1},
                                                         {"graded", 1},
                                                         {"said", 2},
                                                         {"here", 1}}));
  EXPECT_EQ(grade->turns, (std::vector<double>{0.5, 0}));
}

TEST_F(RewardInSandbox, a_command_that_fails_there_leaves_no_grade) {
  RewardSettings settings;
  settings.retries = 0;
  const std::pair<const char*, const char*> cases[] = {
      {"echo lost >&2; exit 4", "ended with exit code 4: lost"},
      {"sleep 100", "did not answer within 2 s"},
      {"echo late >&2; exit 124", "ended with exit code 124: late"},
      {"cat /workspace/none", "No such file"},
      {"head -c 100000 /dev/zero | tr '\\0' x", "more than 65536 bytes"},
      {"echo '{\"terms\": {\"a\": NaN}}'", "no JSON"},
  };
  for (const auto& [command, words] : cases) {
    settings.command = command;
    settings.seconds = std::string_view(command) == "sleep 100" ? 2 : 60;
    const auto grade = grade_with(settings, {});
    ASSERT_FALSE(grade.has_value()) << command;
    EXPECT_THAT(grade.error().message(), HasSubstr(words)) << command;
  }
}

}  // namespace
}  // namespace tandem::envs
