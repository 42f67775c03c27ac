// `tandem eval` as its users meet it: the binary itself, on models of ours and on servers, night after night.
#include <gmock/gmock.h>

#include "eval/player.h"
#include "tests/cli/eval_fixture.h"

namespace tandem {
namespace {

using testing::HasSubstr;

class Eval : public EvalTest {};

TEST_F(Eval, a_night_of_a_model_directory_is_repeated_by_the_next_one_to_the_token) {
  const auto file = suite("model: " + (root() / "model").string() +
                          "\ntasks: {kinds: [echo], split: heldout, limit: 6}\nsamples: 2\nconcurrency: 4\n"
                          "limits: {max_new_tokens: 48, seconds: 60}\n");
  ASSERT_EQ(run_eval({file, "--out", night("one").string()}), 0) << text(output());
  ASSERT_EQ(run_eval({file, "--out", night("two").string(), "--against", night("one").string(), "concurrency=1"}), 0)
      << text(output());
  const Json one = json(night("one") / "results.json"), two = json(night("two") / "results.json");
  for (const char* key : {"suite", "model_digest", "tasks_digest", "started", "seconds", "pass_rate", "ci95", "pass_at",
                          "outcomes", "tasks", "gates", "against"}) {
    EXPECT_TRUE(one.contains(key)) << key;
  }
  EXPECT_TRUE(one.at("against").is_null());
  EXPECT_EQ(one.at("tasks").size(), 6u);
  EXPECT_GT(one.at("compute").at("model_core_seconds").get<double>(), 0);
  EXPECT_EQ(one.at("compute").at("model_gpu_seconds"), 0.0);
  EXPECT_FALSE(one.at("compute").at("sandbox_core_seconds").is_null());
  EXPECT_EQ(one.at("model_digest"), two.at("model_digest"));
  EXPECT_EQ(two.at("against").at("points"), 0.0);
  EXPECT_EQ(two.at("against").at("regressed").size(), 0u);
  const Json& lines_changed = two.at("against").at("work").at("all").at("lines_changed");
  EXPECT_EQ(lines_changed.at("change"), 0.0);
  EXPECT_EQ(lines_changed.at("tasks"), 6);
  EXPECT_EQ(lines_changed.at("samples"), (Json{12, 12}));
  const auto tokens = [&](const std::string& name) {
    Json all = Json::array();
    for (int task = 0; task < 6; ++task) {
      for (const int sample : {0, 1})
        all.push_back(tokens_of(night(name) / "transcripts/echo/heldout" / std::to_string(task) /
                                (std::to_string(sample) + ".json")));
    }
    return all;
  };
  EXPECT_GE(tokens("one")[0].size(), 1u);
  EXPECT_EQ(tokens("one"), tokens("two")) << "beside others or alone, a sample draws the same";
}

TEST_F(Eval, a_trained_model_is_better_than_what_it_was_trained_from_and_swapped_it_is_a_regression) {
  const auto trained = root() / "trained";
  ASSERT_EQ(tandem({"run", std::string(TANDEM_SOURCE_DIR) + "/configs/tiny.yaml", "run.deterministic=true",
                    "trainer.max_lag=0", "tasks.heldout=0", "model.path=" + (root() / "model").string(), "--run-dir",
                    trained.string()}),
            0)
      << text(output());
  const auto file = suite("model: ../trained\ntasks: {kinds: [echo], limit: 30}\nlimits: {max_new_tokens: 48}\n");
  const auto untrained = "model=" + (trained / "model").string();
  ASSERT_EQ(run_eval({file, untrained, "--out", night("one").string()}), 0) << text(output());
  ASSERT_EQ(run_eval({file, "--out", night("two").string(), "--against", night("one").string()}), 0) << text(output());
  const Json gain = json(night("two") / "results.json").at("against");
  EXPECT_GT(gain.at("ci95")[0].get<double>(), 0) << gain.dump();
  ASSERT_EQ(run_eval({file, untrained, "--out", night("three").string(), "--against", night("two").string()}), 4)
      << text(output());
  const Json loss = json(night("three") / "results.json").at("against");
  EXPECT_EQ(loss.at("points").get<double>(), -gain.at("points").get<double>());
  EXPECT_EQ(loss.at("regressed"), gain.at("improved"));
}

TEST_F(Eval, the_agent_says_the_same_tokens_for_the_same_seed) {
  const auto model = (root() / "model").string();
  const auto file = suite("model: " + model + "\ntasks: {path: tasks, limit: 3}\nsamples: 2\n" +
                          "limits: {max_new_tokens: 48, turns: 3}\n");
  ASSERT_EQ(run_eval({file, "--out", night("one").string()}), 0) << text(output());
  fs::create_directories(root() / "suite/folder");
  std::ofstream(root() / "suite/folder/notes.txt") << "hello\n";
  for (const int sample : {0, 1}) {
    const auto transcript = root() / "suite/agent.json";
    const auto seed = std::to_string(eval::seed_of_sample(1, "t1", sample));
    tandem({"agent", "--workspace", (root() / "suite/folder").string(), "--model", model, "--seed", seed,
            "--temperature", "1", "--max-tokens", "48", "--max-turns", "3", "--dry-run", "--transcript",
            transcript.string(), "What is the value of number 1? Answer with it alone."});
    const Json said = tokens_of(transcript);
    ASSERT_GE(said.size(), 1u) << text(output());
    EXPECT_EQ(said, tokens_of(night("one") / "transcripts/t1" / (std::to_string(sample) + ".json")));
  }
}

TEST_F(Eval, the_page_of_its_keys_is_what_its_reader_says) {
  ASSERT_EQ(tandem({"config", "reference", "--of", "eval"}), 0);
  EXPECT_EQ(text(output()), text(fs::path(TANDEM_SOURCE_DIR) / "docs/suite.md"))
      << "tandem config reference --of eval > docs/suite.md";
  EXPECT_EQ(
      tandem({"config", "check", "--of", "eval", std::string(TANDEM_SOURCE_DIR) + "/examples/nightly/suite.yaml"}), 0)
      << text(output());
}

TEST_F(Eval, a_server_of_ours_is_evaluated_over_http) {
  fs::remove(root() / "serve.out");
  Process server({TANDEM_BINARY, "serve", "--model", "tiny=" + (root() / "model").string(), "--port", "0"},
                 root() / "serve.out");
  const auto url = [&]() -> std::string {
    for (const auto& line : lines(root() / "serve.out")) {
      const auto parsed = parse_json(line);
      if (parsed && parsed->is_object() && parsed->contains("url")) return parsed->at("url").get<std::string>();
    }
    return "";
  };
  ASSERT_TRUE(within(60s, [&] { return !url().empty() || !server.running(); }));
  const auto file =
      suite("model: not/used\ntasks: {kinds: [echo], limit: 4}\nsamples: 2\nlimits: {max_new_tokens: 24}\n");
  ASSERT_EQ(run_eval({file, "--out", night("one").string(), "--endpoint", url()}), 0) << text(output());
  const Json results = json(night("one") / "results.json");
  EXPECT_EQ(results.at("model"), "tiny") << "the only model there";
  EXPECT_EQ(results.at("samples").at("verdicts"), 8);
  EXPECT_GT(results.at("tasks")[0].at("samples")[0].at("tokens").get<int>(), 0);
  ASSERT_EQ(run_eval({file, "--out", night("two").string(), "--endpoint", url(), "--against", night("one").string()}),
            0)
      << text(output());
}

TEST_F(Eval, an_equal_night_passes_and_a_worse_model_ends_with_4_and_its_tasks_in_every_output) {
  AnsweringServer server;
  const auto file = suite_of(server);
  ASSERT_EQ(run_eval({file, "--out", night("one").string()}), 0) << text(output());
  ASSERT_EQ(run_eval({file, "--out", night("two").string(), "--against", night("one").string()}), 0) << text(output());
  const Json all_passed = json(night("two") / "results.json");
  EXPECT_EQ(all_passed.at("pass_rate"), 1.0);
  EXPECT_EQ(all_passed.at("solved_tasks"), all_passed.at("tasks").size());
  EXPECT_EQ(all_passed.at("per_solved_task").at("tokens").get<double>(),
            32 * all_passed.at("samples").at("ended").get<double>() / 8);
  EXPECT_TRUE(all_passed.at("per_solved_task").at("core_seconds").is_null()) << "what a server uses is not known";
  for (const char* name : {"report.md", "report.html"})
    EXPECT_THAT(text(night("two") / name), HasSubstr("(the model is behind a server: not known)")) << name;
  ASSERT_EQ(run_eval({"bless", night("one").string()}), 0) << text(output());
  ASSERT_EQ(
      run_eval({file, "endpoint.model=bad", "--out", night("three").string(), "--against", night("two").string()}), 4)
      << text(output());
  EXPECT_THAT(text(output()), HasSubstr("gate max_regression_points failed"));
  EXPECT_THAT(text(output()), HasSubstr("gate max_regression_points_blessed failed"));
  const Json results = json(night("three") / "results.json");
  const Json& against = results.at("against");
  EXPECT_EQ(against.at("points"), -0.75);
  EXPECT_LT(against.at("ci95")[1].get<double>(), 0);
  EXPECT_LT(against.at("p_value").get<double>(), 0.01);
  ASSERT_EQ(against.at("regressed").size(), 6u);
  for (const Json& task : against.at("regressed")) {
    for (const char* name : {"report.md", "report.html", "junit.xml"})
      EXPECT_THAT(text(night("three") / name), HasSubstr(task.get<std::string>())) << name;
  }
  EXPECT_THAT(text(night("three") / "junit.xml"), HasSubstr("tests=\"8\" failures=\"6\" errors=\"0\""));
  EXPECT_EQ(lines(night("three") / "history.jsonl").size(), 3u);

  EXPECT_EQ(run_eval({"compare", night("two").string(), night("three").string(), "--json"}), 4);
  EXPECT_EQ(parse_json(text(output()))->at("points"), -0.75);
  EXPECT_EQ(run_eval({"compare", night("three").string(), night("two").string()}), 0);
  EXPECT_THAT(text(output()), HasSubstr("better by 75.0 points"));
  EXPECT_THAT(text(output()), HasSubstr("  work: "));

  // Gates on the work of a night without changes: it has nothing that grew. The folder of before is judged anew.
  EXPECT_EQ(run_eval({file, "--out", night("two").string(), "--against", night("one").string(), "gates.max_growth=0"}),
            0)
      << text(output());
  EXPECT_THAT(text(night("two") / "junit.xml"), HasSubstr("<property name=\"gate.max_growth\" value=\"passed: "));
  EXPECT_EQ(json(night("two") / "results.json").at("gates").size(), 5u);
  EXPECT_EQ(run_eval({file, "--out", night("two").string(), "--against", night("one").string(), "gates.max_grow=0"}),
            2);
  EXPECT_THAT(text(output()), HasSubstr("did you mean gates.max_growth?"));
  EXPECT_EQ(run_eval({"history", nights().string(), "--json"}), 0);
  EXPECT_EQ(lines(output()).size(), 3u);
}

TEST_F(Eval, gates_may_change_on_a_finished_folder_which_asks_nothing_and_its_suite_may_not) {
  AnsweringServer server;
  const auto file = suite_of(server);
  ASSERT_EQ(run_eval({file, "endpoint.model=bad", "--out", night("one").string()}), 0) << text(output());
  const size_t asked = server.asked();
  const auto before = text(night("one") / "results.json");
  ASSERT_EQ(run_eval({file, "endpoint.model=bad", "--out", night("one").string()}), 0);
  EXPECT_EQ(text(night("one") / "results.json"), before);
  EXPECT_EQ(run_eval({file, "endpoint.model=bad", "gates.min_pass_rate=0.9", "--out", night("one").string()}), 4);
  EXPECT_EQ(server.asked(), asked);
  const auto refused = [&](const Arguments& more, const std::string& why) {
    Arguments all = {file, "--out", night("one").string()};
    all.insert(all.end(), more.begin(), more.end());
    EXPECT_EQ(run_eval(all), 2);
    EXPECT_THAT(text(output()), HasSubstr(why));
  };
  refused({}, "the folder has model bad");
  refused({"endpoint.model=bad", "samples=3"}, "samples 2, this is 3");
  refused({"endpoint.model=bad", "temperature=0"}, "temperature 1, this is 0");
  refused({"endpoint.model=bad", "tasks.limit=3"}, "the folder has 8 tasks, this suite 3");
  refused({"endpoint.model=bad", "sampls=3"}, "did you mean samples?");
  std::ofstream(root() / "suite/tasks/t3.yaml") << "instruction: Another one.\ncheck:\n  answer: \"1\"\n";
  refused({"endpoint.model=bad"}, "task t3 is another one");
  EXPECT_EQ(server.asked(), asked);
}

TEST_F(Eval, tools_that_a_task_brings_are_offered_and_called) {
  std::ofstream(root() / "suite/tools.py") << R"(import json, sys
for line in sys.stdin:
    message = json.loads(line)
    if "id" not in message: continue
    result = {"initialize": {"protocolVersion": "2025-06-18", "capabilities": {"tools": {}},
                             "serverInfo": {"name": "counter", "version": "1"}},
              "tools/list": {"tools": [{"name": "add", "description": "Adds.", "inputSchema": {"type": "object"}}]},
              "tools/call": {"content": [{"type": "text", "text": "7"}]}}[message["method"]]
    print(json.dumps({"jsonrpc": "2.0", "id": message["id"], "result": result}), flush=True)
)";
  std::ofstream(root() / "suite/count.yaml") << "instruction: Count.\nfiles: {server.py: {from: tools.py}}\n"
                                                "mcp: {counter: python3 server.py}\ncheck: {answer: '7'}\n"
                                                "solution: {answer: '7'}\n";
  AnsweringServer server;
  const auto file =
      suite("endpoint: {url: " + server.url() + ", model: caller}\ntasks: {path: count.yaml}\nsamples: 1\n");
  ASSERT_EQ(run_eval({file, "--out", night("one").string()}), 0) << text(output());
  const Json results = json(night("one") / "results.json");
  EXPECT_EQ(results.at("pass_rate"), 1.0) << results.dump(1);
  EXPECT_EQ(results.at("tasks")[0].at("samples")[0].at("tool_calls"), 1);
}

TEST_F(Eval, parts_are_made_one_and_a_part_that_lacks_is_named) {
  AnsweringServer server;
  const auto file = suite_of(server);
  ASSERT_EQ(run_eval({file, "--out", night("whole").string()}), 0);
  for (const char* part : {"1/3", "2/3", "3/3"})
    ASSERT_EQ(run_eval({file, "--out", (root() / "suite" / std::string(1, part[0])).string(), "--shard", part}), 0)
        << text(output());
  const auto part = [&](const char* name) { return (root() / "suite" / name).string(); };
  EXPECT_EQ(run_eval({"merge", part("1"), part("3"), "--out", night("merged").string()}), 2);
  EXPECT_THAT(text(output()), HasSubstr("part 2/3 is not among them"));
  ASSERT_EQ(run_eval({"merge", part("1"), part("2"), part("3"), "--out", night("merged").string(), "--against",
                      night("whole").string()}),
            0)
      << text(output());
  const Json merged = json(night("merged") / "results.json"), whole = json(night("whole") / "results.json");
  EXPECT_EQ(merged.at("tasks_digest"), whole.at("tasks_digest"));
  EXPECT_EQ(merged.at("tasks").size(), 8u);
  EXPECT_EQ(merged.at("pass_rate"), whole.at("pass_rate"));
  EXPECT_TRUE(fs::exists(night("merged") / "transcripts/t7/1.json"));
}

TEST_F(Eval, what_it_cannot_work_with_is_refused_before_anything_is_asked) {
  AnsweringServer server;
  const auto file = suite_of(server);
  EXPECT_EQ(run_eval({file}), 2);
  EXPECT_THAT(text(output()), HasSubstr("--out"));
  EXPECT_EQ(run_eval({"--out", night("one").string()}), 2);
  EXPECT_EQ(run_eval({file, "--out", night("one").string(), "--shard", "5/4"}), 2);
  EXPECT_EQ(run_eval({"history", (root() / "suite").string()}), 2);
  EXPECT_EQ(run_eval({"bless", (root() / "suite").string()}), 2);
  EXPECT_EQ(run_eval({file, "--out", night("one").string(), "--against", (root() / "nowhere").string()}), 2);
  EXPECT_EQ(run_eval({file, "--out", night("one").string(), "endpoint.api_key_env=NOT_SET_ANYWHERE"}), 2);
  EXPECT_THAT(text(output()), HasSubstr("NOT_SET_ANYWHERE"));
  EXPECT_EQ(run_eval({suite("model: " + root().string() + "\ntasks: {path: tasks}\n"), "--out", night("one").string()}),
            2);
  EXPECT_THAT(text(output()), HasSubstr("no model directory"));
  EXPECT_FALSE(fs::exists(night("one")));
  EXPECT_EQ(server.asked(), 0u);
}

}  // namespace
}  // namespace tandem
