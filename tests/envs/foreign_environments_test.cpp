// Environments of somebody else's: a whole episode over lines and over HTTP, and what becomes of slow, dead and lying
// ones.
#include "envs/foreign/foreign_environments.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <thread>

#include "envs/foreign/environment_answers.h"
#include "tests/cli/scripted_server.h"
#include "tests/envs/scratch.h"

namespace tandem::envs {
namespace {

using testing::HasSubstr;

// Answers each question with the line that a Python expression gives, of the question `q`.
class Foreign : public testing::Test {
 protected:
  std::string program(const std::string& body) {
    folder_.put("environment.py",
                std::string("import json, os, sys, time\n"
                            "def say(q, result):\n"
                            "    print(json.dumps({'id': q['id'], 'result': result}), flush=True)\n"
                            "for line in sys.stdin:\n"
                            "    q = json.loads(line)\n"
                            "    m, p = q['method'], q['params']\n") +
                    // What a program that keeps nothing of its episodes may say.
                    (body.find("'close'") == std::string::npos ? "    if m == 'close': say(q, {}); continue\n" : "") +
                    body);
    return "python3 " + (folder_.path / "environment.py").string();
  }
  std::unique_ptr<ForeignEnvironments> with(const std::string& body, double seconds = 60, size_t most_episodes = 8) {
    return std::make_unique<ForeignEnvironments>(
        ForeignSettings{.environments = {{.name = "it", .command = program(body)}},
                        .seconds = seconds,
                        .programs = 1,
                        .most_episodes = most_episodes,
                        .output_limit = 200});
  }
  static TaskSpec task(uint64_t seed = 3) { return {.kind = "it", .split = Split::kTrain, .seed = seed}; }
  static Status failure_of(const Result<std::unique_ptr<Attempt>>& attempt) {
    return attempt ? Status() : attempt.error();
  }
  Scratch folder_;
};

constexpr const char* kCounting =
    "    if m == 'reset':\n"
    "        n = 0\n"
    "        say(q, {'instruction': 'task %d of %s' % (p['seed'], p['split']), 'system': 'Be brief.', 'max_turns': 4,\n"
    "                'tools': [{'type': 'function', 'function': {'name': 'add', 'description': 'Adds.',\n"
    "                           'parameters': {'type': 'object', 'properties': {'by': {'type': 'integer'}}}}}]})\n"
    "    if m == 'step':\n"
    "        n += sum(c['arguments']['by'] for c in p['calls'])\n"
    "        say(q, {'observation': 'at %d' % n, 'results': ['at %d' % n for c in p['calls']],\n"
    "                'reward': 0.25 * len(p['calls']), 'done': p['message'] == 'stop'})\n"
    "    if m == 'state': say(q, {'n': n, 'process': os.getpid()})\n"
    "    if m == 'score': say(q, {'reward': float(n == 5), 'terms': {'n': n}})\n";

TEST_F(Foreign, an_episode_is_played_from_reset_to_score) {
  const auto all = with(kCounting);
  auto attempt = all->open(task());
  ASSERT_TRUE(attempt.has_value()) << attempt.error().to_string();
  Attempt& it = **attempt;
  EXPECT_EQ(it.task().instruction, "task 3 of train");
  EXPECT_EQ(it.task().max_turns, 4);
  const auto opening = it.opening(ToolListing::kByTemplate);
  EXPECT_EQ(opening.messages, (std::vector<Message>{{"system", "Be brief."}, {"user", "task 3 of train"}}));
  EXPECT_EQ(opening.tools.at(0).at("function").at("name"), "add");
  EXPECT_THAT(it.opening(ToolListing::kInMessages).messages.at(0).content, HasSubstr("<tool_call>{\"name\": \"add\""));

  const std::vector<ParsedCall> calls = {{.call = {"add", {{"by", 2}}}, .id = "a"},
                                         {.call = {}, .error = "no such thing", .id = "b"},
                                         {.call = {"add", {{"by", 3}}}, .id = "c"}};
  const auto outcomes = it.turn(calls, "adding");
  ASSERT_TRUE(outcomes.has_value()) << outcomes.error().to_string();
  EXPECT_EQ(outcomes->at(0).output, "at 5");
  EXPECT_THAT(outcomes->at(1).output, HasSubstr("no such thing"));
  EXPECT_FALSE(it.over());
  EXPECT_EQ(**it.next_step("go on"), "at 5");
  EXPECT_EQ(*it.next_step("stop"), std::nullopt);
  EXPECT_TRUE(it.over());
  const auto grade = it.score("stop");
  ASSERT_TRUE(grade.has_value()) << grade.error().to_string();
  EXPECT_EQ(grade->reward, 1);
  EXPECT_EQ(grade->terms, (std::map<std::string, double>{{"n", 5}, {"unread_calls", 1}}));
  EXPECT_EQ(grade->turns, (std::vector<double>{0.5, 0, 0}));
}

TEST_F(Foreign, a_program_plays_episodes_side_by_side_and_is_let_go_of_after_a_failure) {
  const auto all = with(
      "    e = p['episode']\n"
      "    if m == 'reset':\n"
      "        said = globals().get('said', {})\n"
      "        said[e] = []\n"
      "        say(q, {'instruction': 'go', 'episode': e})\n"
      "    if m == 'step' and p['message'] == 'break': sys.exit('it broke')\n"
      "    if m == 'step' and p['message'] == 'refuse':\n"
      "        print(json.dumps({'id': q['id'], 'error': {'message': 'not that'}}), flush=True)\n"
      "    elif m == 'step':\n"
      "        said[e].append(p['message'])\n"
      "        say(q, {'observation': ' '.join(said[e])})\n"
      "    if m == 'close': say(q, said.pop(e))\n"
      "    if m == 'score': say(q, {'reward': 1, 'terms': {'process': os.getpid(), 'open': len(said)}})\n");
  auto first = std::move(*all->open(task())), second = std::move(*all->open(task()));
  EXPECT_EQ(**first->next_step("a"), "a");
  EXPECT_EQ(**second->next_step("b"), "b");
  EXPECT_EQ(**first->next_step("c"), "a c");
  const auto refused = second->next_step("refuse");  // a failure of one episode alone
  ASSERT_FALSE(refused.has_value());
  EXPECT_EQ(refused.error().message(), "environment it: said: not that");
  const auto grade = first->score("");
  ASSERT_TRUE(grade.has_value()) << grade.error().to_string();
  EXPECT_EQ(grade->terms.at("open"), 2);
  first.reset();
  auto third = std::move(*all->open(task()));
  EXPECT_EQ(third->score("")->terms.at("open"), 2) << "what is over is forgotten";
  const auto broke = third->next_step("break");
  ASSERT_FALSE(broke.has_value());
  EXPECT_EQ(broke.error().code(), Code::kUnavailable);
  EXPECT_THAT(broke.error().message(), HasSubstr("environment it: its program has ended: it broke"));
  const auto spared = second->next_step("d").error();
  EXPECT_EQ(spared.code(), Code::kCancelled) << "an attempt that does not count";
  EXPECT_THAT(spared.message(), HasSubstr("was ended, after a failure of another episode"));
  auto fourth = std::move(*all->open(task()));
  EXPECT_NE(fourth->score("")->terms.at("process"), grade->terms.at("process"));
}

// Who waits for its turn while the program ends has lost nothing: it begins in the next program.
TEST_F(Foreign, an_episode_that_waits_to_begin_while_another_breaks_the_program_begins_in_the_next) {
  const auto all = with(
      "    if m == 'reset': say(q, {'instruction': 'go'})\n"
      "    if m == 'step':\n"
      "        time.sleep(0.3)\n"
      "        sys.exit('it broke')\n"
      "    if m == 'score': say(q, {'reward': 1})\n",
      60);
  auto first = all->open(task());
  ASSERT_TRUE(first.has_value()) << first.error().to_string();
  std::thread breaks([&] { EXPECT_EQ((*first)->next_step("break").error().code(), Code::kUnavailable); });
  std::vector<std::thread> begin;
  for (int i = 0; i < 4; ++i) {
    begin.emplace_back([&] {
      const auto attempt = all->open(task());
      ASSERT_TRUE(attempt.has_value()) << attempt.error().to_string();
    });
  }
  breaks.join();
  for (auto& each : begin) each.join();
}

// The others go on: nobody waits for what a program says to `close`.
TEST_F(Foreign, a_close_that_is_not_answered_or_late_breaks_no_other_episode) {
  const auto all = with(
      "    if m == 'reset': late = []; say(q, {'instruction': 'x', 'max_turns': 4})\n"
      "    if m == 'step': say(q, {'observation': str(os.getpid())})\n"
      "    if m == 'score':\n"
      "        for c in late: say(c, {})\n"
      "        say(q, {'reward': 1})\n"
      "    if m == 'close': late = late + [q]\n",
      60);
  auto stays = all->open(task(1));
  ASSERT_TRUE(stays.has_value()) << stays.error().to_string();
  const auto before = (*stays)->next_step("one");
  ASSERT_TRUE(before.has_value()) << before.error().to_string();
  for (int i = 0; i < 3; ++i) {
    auto goes = all->open(task(2));
    ASSERT_TRUE(goes.has_value()) << goes.error().to_string();
  }
  const auto after = (*stays)->next_step("two");
  ASSERT_TRUE(after.has_value()) << after.error().to_string();
  EXPECT_EQ(*before, *after) << "the program was started again";
  // Here the answers to `close` come, before that to the question.
  const auto grade = (*stays)->score("");
  ASSERT_TRUE(grade.has_value()) << grade.error().to_string();
  EXPECT_EQ(grade->reward, 1);
}

TEST_F(Foreign, a_question_waits_for_its_turn_no_longer_than_for_an_answer) {
  const auto begun = folder_.path / "begun", go = folder_.path / "go";
  const auto line = open_line({.name = "it",
                               .command = program("    if m == 'slow': open('" + begun.string() +
                                                  "', 'w').close()\n"
                                                  "    while m == 'slow' and not os.path.exists('" +
                                                  go.string() +
                                                  "'): time.sleep(0.01)\n"
                                                  "    say(q, {'m': m})\n")});
  ASSERT_TRUE(line.has_value()) << line.error().to_string();
  Result<Json> first = fail(Status::internal("not asked"));
  std::thread asks([&] { first = (*line)->ask("slow", Json::object(), 60); });
  for (int i = 0; i < 6000 && !std::filesystem::exists(begun); ++i)
    std::this_thread::sleep_for(std::chrono::milliseconds(10));
  const auto second = (*line)->ask("quick", Json::object(), 0.05);
  folder_.put("go", "");
  asks.join();
  ASSERT_FALSE(second.has_value());
  EXPECT_EQ(second.error().code(), Code::kExhausted) << second.error().to_string();
  EXPECT_THAT(second.error().to_string(), HasSubstr("env.external_programs"));
  // Neither has lost its line by that.
  ASSERT_TRUE(first.has_value()) << first.error().to_string();
  EXPECT_TRUE((*line)->ask("quick", Json::object(), 60).has_value());
}

TEST_F(Foreign, no_more_attempts_than_it_may_have_are_begun) {
  const auto all = with(kCounting, 60, 1);
  auto first = all->open(task());
  ASSERT_TRUE(first.has_value());
  EXPECT_EQ(failure_of(all->open(task())).code(), Code::kExhausted);
  first->reset();
  EXPECT_TRUE(all->open(task()).has_value());
}

TEST_F(Foreign, the_reward_may_be_the_sum_of_steps) {
  const auto all = with(
      "    if m == 'reset': say(q, {'instruction': 'go', 'score': 'sum'})\n"
      "    if m == 'step': say(q, {'observation': 'more', 'reward': 0.5})\n");
  auto attempt = all->open(task());
  ASSERT_TRUE(attempt.has_value()) << attempt.error().to_string();
  (void)(*attempt)->next_step("a");
  (void)(*attempt)->next_step("b");
  const auto grade = (*attempt)->score("b");
  ASSERT_TRUE(grade.has_value());
  EXPECT_EQ(grade->reward, 1);
  EXPECT_EQ(grade->turns, (std::vector<double>{0.5, 0.5}));
}

struct Lie {
  const char* body;
  Code code;
  const char* words;
};

TEST_F(Foreign, what_is_wrong_at_reset_is_an_error_that_names_it) {
  const Lie lies[] = {
      {"    time.sleep(100)\n", Code::kDeadline, "did not answer reset within 2 s"},
      {"    sys.exit('no license')\n", Code::kUnavailable, "its program has ended: no license"},
      {"    print('hello', flush=True)\n", Code::kCorrupt, "answered no JSON"},
      {"    say({'id': q['id'] + 7}, {'instruction': 'x'})\n", Code::kCorrupt, "answered to id 8, asked was 1"},
      {"    print(json.dumps({'result': {}}), flush=True)\n", Code::kCorrupt, "answered no {\"id\""},
      {"    print(json.dumps({'id': 1, 'error': {'message': 'out of tasks'}}), flush=True)\n", Code::kUnavailable,
       "said: out of tasks"},
      {"    say(q, {})\n", Code::kCorrupt, "without an instruction"},
      {"    say(q, {'instruction': 'x', 'max_turns': 0})\n", Code::kCorrupt, "max_turns must be"},
      {"    say(q, {'instruction': 'x', 'instrution': 1})\n", Code::kCorrupt, "did you mean \"instruction\""},
      {"    say(q, {'instruction': 'x', 'tools': [{'name': 'a'}]})\n", Code::kCorrupt, "a tool is no"},
      {"    say(q, {'instruction': 'x' * 2000000})\n", Code::kExhausted, "more than 1048576 bytes"},
      {"    sys.stdout.buffer.write(b'{\"id\": 1, \"result\": {\"instruction\": \"\\xff\"}}\\n'); sys.stdout.flush()\n",
       Code::kCorrupt, "answered no JSON"},
      {"    while True: sys.stderr.write('x' * 1000)\n", Code::kDeadline, "did not answer"},
      {"    while True: sys.stdout.write('x' * 1000)\n", Code::kDeadline, "did not answer"},
  };
  for (const auto& [body, code, words] : lies) {
    const auto all = with(body, code == Code::kDeadline ? 2 : 60);
    const auto failure = failure_of(all->open(task()));
    EXPECT_EQ(failure.code(), code) << body << failure.to_string();
    EXPECT_THAT(failure.message(), HasSubstr("environment it: ")) << body;
    EXPECT_THAT(failure.message(), HasSubstr(words)) << body;
  }
}

TEST_F(Foreign, what_is_wrong_later_is_an_error_and_never_a_grade) {
  const std::string begins = "    if m == 'reset': say(q, {'instruction': 'go', 'episode': p['episode']}); continue\n";
  const Lie lies[] = {
      {"    say(q, {'reward': float('nan'), 'done': True})\n", Code::kCorrupt, "no JSON"},
      {"    say(q, {'reward': 1e300, 'done': True})\n", Code::kCorrupt, "must be within"},
      {"    say(q, {'reward': '1', 'done': True})\n", Code::kCorrupt, "is string, not a number"},
      {"    say(q, {'reward': 1, 'done': True, 'episode': 'yours'})\n", Code::kCorrupt,
       "answered for the episode \"yours\""},
      {"    say(q, {'reward': 1, 'done': True, 'results': ['a', 'b']})\n", Code::kCorrupt, "2 results to 0 calls"},
      {"    say(q, {})\n", Code::kCorrupt, "nothing to go on with"},
      {"    say(q, {'observation': 'x' * 2000000})\n", Code::kExhausted, "more than 1048576 bytes"},
      {"    say(q, {'observation': 'a'}); say(q, {'observation': 'b'})\n", Code::kCorrupt, "answer"},
      {"    os._exit(3)\n", Code::kUnavailable, "has ended"},
      {"    time.sleep(100)\n", Code::kDeadline, "did not answer step within 10 s"},
  };
  for (const auto& [body, code, words] : lies) {
    const auto all = with(begins + body, code == Code::kDeadline ? 10 : 60);
    auto attempt = all->open(task());
    ASSERT_TRUE(attempt.has_value()) << body << attempt.error().to_string();
    auto next = (*attempt)->next_step("hello");
    if (next) next = (*attempt)->next_step("hello again");  // of what is doubled the second is too much
    ASSERT_FALSE(next.has_value()) << body;
    EXPECT_EQ(next.error().code(), code) << body << next.error().to_string();
    EXPECT_THAT(next.error().message(), HasSubstr(words)) << body;
  }
  const auto all = with(begins + "    say(q, {'reward': float('inf')})\n", 60);
  auto attempt = all->open(task());
  ASSERT_TRUE(attempt.has_value());
  EXPECT_EQ((*attempt)->score("").error().code(), Code::kCorrupt);
}

TEST_F(Foreign, a_term_that_is_counted_here_is_none_of_its_own) {
  const auto all = with(
      "    if m == 'reset': say(q, {'instruction': 'go'})\n"
      "    if m == 'score': say(q, {'reward': 1, 'terms': {'unread_calls': 5}})\n");
  auto attempt = all->open(task());
  ASSERT_TRUE(attempt.has_value());
  const auto grade = (*attempt)->score("");
  ASSERT_FALSE(grade.has_value());
  EXPECT_THAT(grade.error().message(), HasSubstr("unread_calls"));
}

// Many libraries write the key whatever came of the question.
TEST_F(Foreign, an_error_of_null_is_none) {
  const auto all =
      with("    print(json.dumps({'id': q['id'], 'error': None, 'result': {'instruction': 'go'}}), flush=True)\n");
  const auto attempt = all->open(task());
  EXPECT_TRUE(attempt.has_value()) << attempt.error().to_string();
}

TEST_F(Foreign, long_observations_are_cut_and_made_printable) {
  const auto all = with(
      "    if m == 'reset': say(q, {'instruction': 'go'})\n"
      "    if m == 'step': say(q, {'observation': '\\x1b[31mred\\x00' + 'y' * 10000})\n");
  auto attempt = all->open(task());
  ASSERT_TRUE(attempt.has_value());
  const auto next = (*attempt)->next_step("a");
  ASSERT_TRUE(next.has_value() && next->has_value());
  EXPECT_LE((*next)->size(), 300U);
  EXPECT_THAT(**next, HasSubstr("red"));
  EXPECT_EQ((*next)->find('\x1b'), std::string::npos);
}

TEST_F(Foreign, probing_names_the_one_that_does_not_work) {
  EXPECT_TRUE(with(kCounting)->probe().ok());
  const auto status =
      with("    if m == 'reset': say(q, {'instruction': 'x'})\n    else: sys.exit('no state')\n")->probe();
  EXPECT_THAT(status.message(), HasSubstr("environment it: its program has ended: no state"));
}

TEST(ForeignOverHttp, an_episode_is_played_and_named_in_each_question) {
  ScriptedServer server;
  const auto say = [&](const Json& json) { server.answer({200, {}, dump_json(json)}); };
  ForeignEnvironments all({.environments = {{.name = "it", .url = server.url()}}, .seconds = 20});
  say({{"instruction", "go"}});
  auto attempt = all.open({.kind = "it", .split = Split::kHeldout, .seed = 5});
  ASSERT_TRUE(attempt.has_value()) << attempt.error().to_string();
  say({{"done", true}});
  EXPECT_EQ(*(*attempt)->next_step("answer"), std::nullopt);
  say({{"reward", 0.5}});
  EXPECT_EQ((*attempt)->score("answer")->reward, 0.5);
  const auto requests = server.requests();
  const Json name = requests.at(0).at("episode");
  EXPECT_EQ(requests.at(0), (Json{{"episode", name}, {"seed", 5}, {"split", "heldout"}}));
  EXPECT_EQ(requests.at(1), (Json{{"message", "answer"}, {"calls", Json::array()}, {"episode", name}}));
  EXPECT_EQ(requests.at(2), (Json{{"answer", "answer"}, {"episode", name}}));
}

TEST(ForeignOverHttp, dead_slow_and_lying_servers_are_errors) {
  ScriptedServer server;
  const auto failure = [&](wire::HttpResponse answer) {
    ForeignEnvironments all({.environments = {{.name = "it", .url = server.url()}},
                             .seconds = answer.status == ScriptedServer::kNever ? 1.0 : 60.0});
    server.answer(std::move(answer));
    const auto attempt = all.open({.kind = "it"});
    return attempt ? Status() : attempt.error();
  };
  EXPECT_EQ(failure({ScriptedServer::kNever, {}, ""}).code(), Code::kDeadline);
  EXPECT_EQ(failure({500, {}, "out of order"}).message(), "environment it: answered 500: out of order");
  EXPECT_EQ(failure({200, {}, "<html>"}).code(), Code::kCorrupt);
  EXPECT_THAT(failure({200, {}, R"({"instruction": "x", "episode": "y"})"}).message(),
              HasSubstr("answered for the episode \"y\""));
  EXPECT_EQ(failure({200, {}, std::string(2'000'000, ' ')}).code(), Code::kExhausted);
  EXPECT_EQ(failure({ScriptedServer::kCut, {}, ""}).code(), Code::kUnavailable);
}

TEST(EnvironmentSpecs, are_programs_or_servers_by_name) {
  const auto read = [](const std::vector<std::string>& entries) { return parse_environments(entries); };
  const auto specs = read({"guess=python3 guess.py --n=3", "far=http://127.0.0.1:8000/"});
  ASSERT_TRUE(specs.has_value()) << specs.error().to_string();
  EXPECT_EQ(specs->at(0), (EnvironmentSpec{.name = "guess", .command = "python3 guess.py --n=3"}));
  EXPECT_EQ(specs->at(1), (EnvironmentSpec{.name = "far", .url = "http://127.0.0.1:8000"}));
  for (const char* entry : {"guess", "=x", "Guess=x", "a b=x", "guess=", "far=http://"})
    EXPECT_THAT(read({entry}).error().message(), HasSubstr(entry));
  EXPECT_FALSE(read({"a=x", "a=y"}).has_value());
}

}  // namespace
}  // namespace tandem::envs
