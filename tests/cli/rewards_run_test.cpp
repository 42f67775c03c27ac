// Runs with rewards and environments of the user's own, by the real binary on the tiny model.
#include <gmock/gmock.h>

#include <fstream>
#include <map>
#include <set>

#include "tests/cli/run_fixture.h"
#include "tests/envs/gullible_judge.h"

namespace tandem {
namespace {

using testing::HasSubstr;
using testing::Not;

class RewardsRun : public RunTest {
 protected:
  static std::string file(const std::string& name, const std::string& content) {
    fs::create_directories(root() / "own");
    std::ofstream(root() / "own" / name) << content;
    return (root() / "own" / name).string();
  }
  static Arguments small(Arguments more) {
    for (const char* each : {"run.steps=2", "tasks.heldout=2", "tasks.floors=false"}) more.emplace_back(each);
    return more;
  }
  static Json last_step(const fs::path& run_dir) {
    const std::string lines = text(run_dir / "metrics.jsonl");
    const auto all = split_lines(lines);
    return all.empty() ? Json::object() : *parse_json(all.back());
  }
};

TEST_F(RewardsRun, a_command_in_the_sandbox_says_terms_that_are_learned_from) {
  const auto script = file("score.py",
                           "import json, sys\n"
                           "e = json.load(sys.stdin)\n"
                           "letters = len(e['messages'][-1]['content'] or '')\n"
                           "print(json.dumps({'terms': {'calls': len(e['calls']), 'letters': letters}}))\n");
  const fs::path run_dir = root() / "command";
  ASSERT_EQ(run(small({"reward.command=python3 score.py", "reward.files=[" + script + "]", "reward.task=0",
                       "reward.weights=[letters=0.1]"}),
                run_dir),
            0)
      << text(output());
  std::map<uint64_t, std::vector<Json>> groups;
  for (const Json& episode : episodes(run_dir)) {
    if (episode["reward"].is_null()) continue;
    ASSERT_EQ(episode["terms"].contains("letters"), episode["split"] == "train") << episode.dump();
    if (episode["state"] == "trained") groups[episode["group"].get<uint64_t>()].push_back(episode);
  }
  EXPECT_FALSE(groups.empty());
  for (const auto& [group, members] : groups) {
    double sum = 0;
    for (const Json& episode : members) sum += episode["terms"]["letters"].get<double>();
    for (const Json& episode : members) {
      const double above = episode["terms"]["letters"].get<double>() - sum / static_cast<double>(members.size());
      EXPECT_NEAR(episode["advantage"].get<double>(), 0.1 * above, 1e-9) << episode.dump();
    }
  }
  EXPECT_TRUE(last_step(run_dir)["terms"].contains("letters")) << last_step(run_dir).dump();
  // Two steps may be over before the server reports a second time: the counting has unit tests.
  EXPECT_TRUE(last_step(run_dir)["roles"]["env-0"].contains("reward_answered")) << last_step(run_dir).dump();
  EXPECT_EQ(text(run_dir / "reward" / "score.py"), text(script));
  expect_books_to_agree(run_dir);
  expect_nothing_left(run_dir);
}

TEST_F(RewardsRun, an_episode_that_a_command_fails_on_is_an_infra_error_and_never_a_zero) {
  // Fails for good on every episode of some tasks.
  const auto script = file("fails.py",
                           "import json, sys\n"
                           "e = json.load(sys.stdin)\n"
                           "if sum(map(ord, e['task']['instruction'])) % 2: sys.exit('odd one')\n"
                           "print(json.dumps({'terms': {'even': 1}}))\n");
  const fs::path run_dir = root() / "fails";
  ASSERT_EQ(run(small({"reward.command=python3 fails.py", "reward.files=[" + script + "]", "reward.place=server",
                       "reward.retries=0", "reward.weights=[even=1]"}),
                run_dir),
            0)
      << text(output());
  int failed = 0, scored = 0;
  for (const Json& episode : episodes(run_dir)) {
    if (episode["split"] != "train") {
      EXPECT_NE(episode["outcome"], "infra_error") << "what is held out is measured by the task alone";
      continue;
    }
    if (episode["outcome"] == "infra_error") {
      ++failed;
      EXPECT_TRUE(episode["reward"].is_null()) << episode.dump();
      EXPECT_EQ(episode["state"], "dropped");
    } else if (!episode["reward"].is_null()) {
      ++scored;
      EXPECT_EQ(episode["terms"]["even"], 1) << episode.dump();
    }
  }
  EXPECT_GT(failed, 0);
  EXPECT_GT(scored, 0);
  EXPECT_THAT(logs(run_dir), HasSubstr("reward.command: ended with exit code 1: odd one"));
  expect_books_to_agree(run_dir);
}

TEST_F(RewardsRun, a_judge_compares_the_episodes_of_a_group_and_says_what_it_cost) {
  GullibleJudge judge;
  const auto rubric = file("rubric.md", "Better is better.");
  const fs::path run_dir = root() / "judged";
  ::setenv("TANDEM_TEST_JUDGE_KEY", "sesame-of-the-judge", 1);
  const int exit = run(small({"reward.judge=" + judge.url(), "reward.judge_model=m", "reward.judge_rubric=" + rubric,
                              "reward.judge_key_env=TANDEM_TEST_JUDGE_KEY", "reward.judge_pairwise=true",
                              "reward.judge_price=2", "reward.weights=[preferred=1]"}),
                       run_dir);
  ::unsetenv("TANDEM_TEST_JUDGE_KEY");
  ASSERT_EQ(exit, 0) << text(output());
  int preferred = 0;
  for (const Json& episode : episodes(run_dir)) {
    if (episode["state"] != "trained") continue;
    ASSERT_TRUE(episode["terms"].contains("preferred")) << episode.dump();
    ++preferred;
  }
  EXPECT_GT(preferred, 0);
  const Json said = last_step(run_dir)["judge"];
  EXPECT_EQ(said["agreement"], 1) << said.dump();
  EXPECT_EQ(said["prompt_tokens"].get<int>(), 100 * said["answered"].get<int>());
  EXPECT_GT(said["cost"].get<double>(), 0);
  EXPECT_THAT(text(run_dir / "report.html"), HasSubstr("agreement"));
  for (const char* name : {"summary.json", "metrics.jsonl", "config.resolved.json", "report.html"})
    EXPECT_THAT(text(run_dir / name), Not(HasSubstr("sesame-of-the-judge"))) << name;
  EXPECT_THAT(logs(run_dir), Not(HasSubstr("sesame-of-the-judge")));
  expect_books_to_agree(run_dir);
}

TEST_F(RewardsRun, an_environment_of_ones_own_takes_part_beside_the_family) {
  const fs::path run_dir = root() / "external";
  ASSERT_EQ(run(small({"env.external=[store=python3 " TANDEM_SOURCE_DIR "/examples/environments/store.py]",
                       "tasks.kinds=[echo, store]"}),
                run_dir),
            0)
      << text(output());
  std::map<std::string, int> trained, scored;
  for (const Json& episode : episodes(run_dir)) {
    const auto kind = episode["kind"].get<std::string>();
    trained[kind] += episode["state"] == "trained";
    if (kind != "store" || episode["reward"].is_null()) continue;
    EXPECT_TRUE(episode["terms"].contains("keys")) << episode.dump();
    ++scored[kind];
  }
  EXPECT_GT(trained["echo"] + trained["store"], 0);
  EXPECT_GT(scored["store"], 0);
  expect_books_to_agree(run_dir);
  expect_nothing_left(run_dir);
}

TEST_F(RewardsRun, an_environment_whose_episodes_outgrow_their_context_is_summed_up) {
  const std::string folder = TANDEM_SOURCE_DIR "/examples/environments/";
  const fs::path run_dir = root() / "errands";
  ASSERT_EQ(run(small({"env.external=[errands=python3 " + folder + "errands.py]", "tasks.kinds=[errands]",
                       "env.profile=" + folder + "errands.yaml", "rollout.max_tokens=264", kWithSignal}),
                run_dir),
            0)
      << text(output());
  EXPECT_GT(json(run_dir / "summary.json")["compactions"].get<int>(), 0);
  expect_same_logprobs(run_dir);
  expect_books_to_agree(run_dir);
}

// A warm start on demonstrations whose prompt is not that of the run warms up for nothing.
TEST_F(RewardsRun, demonstrations_of_an_environment_begin_as_its_episodes_do) {
  const std::string gather = TANDEM_SOURCE_DIR "/examples/environments/gather.py";
  const fs::path demonstrations = root() / "gather.jsonl", run_dir = root() / "gather";
  ASSERT_EQ(Process({"/usr/bin/env", "python3", gather, "--demonstrations", "3"}, demonstrations).wait(), 0);
  // The untrained model may read nothing at all, so that there is nothing to learn (5).
  ASSERT_THAT(run(small({"env.external=[gather=python3 " + gather + "]", "tasks.kinds=[gather]", "reward.effort=0.2",
                         "reward.effort_turn=1"}),
                  run_dir),
              testing::AnyOf(0, 5))
      << text(output());
  const auto prompt = [&](const fs::path& data) {
    const int code =
        tandem({"sft", "--show", "1", "model=" + (root() / "model").string(), "out=" + (root() / "warm").string(),
                "data.train=[" + data.string() + "]", "data.tool_calls=text", "data.min_reward=-1000"});
    EXPECT_EQ(code, 0) << text(output());
    const std::string shown = text(output());
    const size_t begin = shown.find("<|im_start|>"), end = shown.find("⟦", begin);
    EXPECT_LT(begin, end) << shown;
    return begin < end ? shown.substr(begin, end - begin) : shown;
  };
  EXPECT_EQ(prompt(demonstrations), prompt(run_dir));
}

TEST_F(RewardsRun, an_environment_that_lies_later_ends_its_episodes_as_infra_errors) {
  const auto script = file("liar.py",
                           "import json, sys\n"
                           "for line in sys.stdin:\n"
                           "    q = json.loads(line)\n"
                           "    result = {'instruction': 'x'} if q['method'] == 'reset' else {'reward': float('nan')}\n"
                           "    print(json.dumps({'id': q['id'], 'result': result}), flush=True)\n");
  // At the start it is asked for its state, which may be anything but no JSON.
  const fs::path run_dir = root() / "liar";
  EXPECT_EQ(run(small({"env.external=[liar=python3 " + script + "]", "tasks.kinds=[liar]"}), run_dir), 3);
  EXPECT_THAT(text(output()), HasSubstr("environment liar: answered no JSON"));
  file("liar.py",
       "import json, sys\n"
       "for line in sys.stdin:\n"
       "    q = json.loads(line)\n"
       "    results = {'reset': {'instruction': 'x'}, 'state': {}}\n"
       "    result = results.get(q['method'], {'reward': float('nan')})\n"
       "    print(json.dumps({'id': q['id'], 'result': result}), flush=True)\n");
  EXPECT_EQ(
      run(small({"env.external=[liar=python3 " + script + "]", "tasks.kinds=[liar]", "tasks.heldout=0"}), run_dir), 5)
      << text(output());
  for (const Json& episode : episodes(run_dir)) EXPECT_TRUE(episode["reward"].is_null()) << episode.dump();
  EXPECT_THAT(logs(run_dir), HasSubstr("environment liar: answered no JSON"));
}

// A scheduler is told by the exit code alone, and looks into failure.json for the reason.
TEST_F(RewardsRun, a_run_that_had_nothing_to_learn_from_ends_with_5_and_its_reason) {
  const auto script = file("same.py", "print('{\"terms\": {\"a\": 0.5}}')\n");
  const fs::path run_dir = root() / "same";
  ASSERT_EQ(run(small({"reward.command=python3 same.py", "reward.files=[" + script + "]", "reward.place=server",
                       "reward.task=0", "reward.weights=[a=1]", "trainer.dynamic_sampling=3", "run.steps=2",
                       "trainer.groups_per_step=2"}),
                run_dir),
            5)
      << text(output());
  EXPECT_THAT(text(output()), HasSubstr("groups had a signal"));
  EXPECT_THAT(json(run_dir / "failure.json")["reason"].get<std::string>(), HasSubstr("groups had a signal"));
}

// Nobody waits for a run to end to hear that its rewards are broken, and no weights come of them.
TEST_F(RewardsRun, a_run_whose_rewards_never_work_says_so_and_stops) {
  const auto script = file("broken.py", "import no_such_module\n");
  const fs::path run_dir = root() / "broken";
  ASSERT_EQ(run({"run.steps=50", "run.unscored_steps=1", "tasks.heldout=0", "tasks.floors=false", "reward.retries=0",
                 "reward.command=python3 broken.py", "reward.files=[" + script + "]", "reward.place=server",
                 "reward.weights=[a=1]"},
                run_dir),
            5)
      << text(output());
  const std::string reason =
      "reward.command: ended with exit code 1: ModuleNotFoundError: No module named 'no_such_module'";
  const std::string screen = text(output());
  EXPECT_THAT(screen, HasSubstr("without a reward, the last for episode"));
  EXPECT_THAT(screen, HasSubstr(reason));
  EXPECT_THAT(screen, HasSubstr("run.unscored_steps"));
  EXPECT_THAT(screen, HasSubstr("--resume"));
  const Json failures = json(run_dir / "failures.json");
  ASSERT_TRUE(failures.contains("failures")) << text(run_dir / "failures.json");
  EXPECT_EQ(failures["format"], 2);
  EXPECT_THAT(failures["failures"].at(0).at("reason").get<std::string>(), HasSubstr(reason));
  EXPECT_GT(failures["failures"].at(0).at("count").get<int>(), 12);
  EXPECT_EQ(json(run_dir / "summary.json")["steps"], 0) << "no step was spent on episodes that had no reward";
  for (const char* name : {"status.json", "summary.json", "report.html", "failure.json"})
    EXPECT_THAT(text(run_dir / name), HasSubstr("no_such_module")) << name;
  bool is_told = false;
  for (const Json& episode : episodes(run_dir)) {
    EXPECT_TRUE(episode["reward"].is_null()) << episode.dump();
    EXPECT_TRUE(episode["learned_reward"].is_null()) << episode.dump();
    is_told = is_told || (episode["reason"].is_string() && episode["reason"].get<std::string>().find(reason) == 0);
  }
  EXPECT_TRUE(is_told);
  expect_books_to_agree(run_dir);
  expect_nothing_left(run_dir);
}

TEST_F(RewardsRun, a_dry_run_tries_the_rewards_once) {
  const auto dry = [&](Arguments more) {
    more.emplace_back("--dry-run");
    return run(more, root() / "tried");
  };
  const auto good = file("good.py",
                         "import json, sys\n"
                         "e = json.load(sys.stdin)\n"
                         "print(json.dumps({'terms': {'calls': len(e['calls'])}}))\n");
  for (const char* place : {"sandbox", "server"}) {
    ASSERT_EQ(dry({"reward.command=python3 good.py", "reward.files=[" + good + "]", "reward.weights=[calls=1]",
                   std::string("reward.place=") + place}),
              0)
        << text(output());
    EXPECT_THAT(text(output()), HasSubstr("tried     the rewards, on a sample episode: {\"calls\":1")) << place;
  }
  EXPECT_EQ(dry({"reward.command=python3 good.py", "reward.files=[" + good + "]", "reward.weights=[colour=1]"}), 3);
  EXPECT_THAT(text(output()), HasSubstr("nobody said the term colour"));
  EXPECT_EQ(dry({"reward.command=no-such-program", "reward.weights=[a=1]"}), 3);
  EXPECT_THAT(text(output()), HasSubstr("asked about a sample episode: reward.command: ended with exit code 127"));
  EXPECT_EQ(dry({"reward.command=sleep 600", "reward.weights=[a=1]", "reward.seconds=5"}), 3);
  EXPECT_THAT(text(output()), HasSubstr("did not answer within 5 s"));
  EXPECT_EQ(dry({"reward.http=http://127.0.0.1:1/", "reward.weights=[a=1]"}), 3);
  EXPECT_THAT(text(output()), HasSubstr("reward.http: "));
  GullibleJudge judge;
  const auto rubric = file("dry-rubric.md", "Better is better.");
  ASSERT_EQ(dry({"reward.judge=" + judge.url(), "reward.judge_model=m", "reward.judge_rubric=" + rubric,
                 "reward.judge_pairwise=true", "reward.weights=[preferred=1]"}),
            0)
      << text(output());
  EXPECT_EQ(judge.asked(), 1);
}

TEST_F(RewardsRun, a_dry_run_shows_what_is_configured_and_names_what_is_wrong) {
  const auto script = file("ok.py", "print('{\"terms\": {\"a\": 1}}')\n");
  const auto dry = [&](Arguments more) {
    more.emplace_back("--dry-run");
    return run(more, root() / "dry");
  };
  ASSERT_EQ(dry({"reward.command=python3 ok.py", "reward.files=[" + script + "]", "reward.weights=[a=0.5]"}), 0)
      << text(output());
  EXPECT_THAT(text(output()), HasSubstr("reward    reward.command in a sandbox `python3 ok.py`, task x 1, a x 0.5"));
  EXPECT_EQ(dry({"reward.command=python3 ok.py"}), 2);
  EXPECT_THAT(text(output()), HasSubstr("reward.weights names no term"));
  EXPECT_EQ(dry({"reward.command=x", "reward.weights=[a=1]", "reward.files=[/no/such/file.py]"}), 2);
  EXPECT_THAT(text(output()), HasSubstr("/no/such/file.py"));
  EXPECT_EQ(dry({"reward.http=http://127.0.0.1:1/", "reward.weights=[a=1]", "reward.key_env=TANDEM_NO_SUCH_KEY"}), 3);
  EXPECT_THAT(text(output()), HasSubstr("TANDEM_NO_SUCH_KEY is not set"));
  EXPECT_EQ(dry({"reward.judge=http://127.0.0.1:1/v1"}), 2);
  EXPECT_THAT(text(output()), HasSubstr("reward.judge_rubric"));
  EXPECT_EQ(dry({"tasks.kinds=[ecko]"}), 2);
  EXPECT_THAT(text(output()), HasSubstr("did you mean \"echo\""));
  EXPECT_EQ(dry({"env.external=[gone=exit 3]", "tasks.kinds=[gone]"}), 3);
  EXPECT_THAT(text(output()), HasSubstr("environment gone: its program has ended"));
}

}  // namespace
}  // namespace tandem
