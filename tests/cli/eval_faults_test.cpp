// `tandem eval` when something fails: servers that refuse, lie or are gone, kills, models that are half written.
#include <gmock/gmock.h>

#include "tests/cli/eval_fixture.h"

namespace tandem {
namespace {

using testing::HasSubstr;

class EvalFaults : public EvalTest {};

TEST_F(EvalFaults, a_killed_evaluation_goes_on_where_it_was_and_comes_to_the_same_end) {
  AnsweringServer server;
  const auto file = suite_of(server);
  server.hold_after(5);
  {
    Process process(eval({file, "--out", night("one").string()}), output(), {"no_proxy=127.0.0.1"});
    ASSERT_TRUE(within(60s, [&] { return lines(night("one") / "episodes.jsonl").size() == 5; })) << text(output());
    process.signal(SIGKILL);
    EXPECT_EQ(process.wait(), -SIGKILL);
  }
  std::ofstream(night("one") / "episodes.jsonl", std::ios::app) << R"({"task":"t7","samp)";
  const size_t asked = server.asked();
  server.hold_after(-1);
  ASSERT_EQ(run_eval({file, "--out", night("one").string()}), 0) << text(output());
  EXPECT_EQ(server.asked() - asked, 11u);
  EXPECT_EQ(lines(night("one") / "episodes.jsonl").size(), 16u);
  const Json results = json(night("one") / "results.json");
  EXPECT_EQ(results.at("pass_rate"), 1.0);
  EXPECT_EQ(results.at("outcomes").at("completed"), 16);
}

TEST_F(EvalFaults, an_interrupted_one_ends_with_75_and_goes_on) {
  AnsweringServer server;
  const auto file = suite_of(server);
  server.hold_after(3);
  {
    Process process(eval({file, "--out", night("one").string()}), output(), {"no_proxy=127.0.0.1"});
    ASSERT_TRUE(within(60s, [&] { return lines(night("one") / "episodes.jsonl").size() == 3; })) << text(output());
    EXPECT_EQ(run_eval({file, "--out", night("one").string()}), 2) << "it is in use";
    process.signal(SIGTERM);
    EXPECT_EQ(process.wait(60s), 75);
  }
  EXPECT_FALSE(fs::exists(night("one") / "results.json"));
  server.hold_after(-1);
  ASSERT_EQ(run_eval({file, "--out", night("one").string()}), 0) << text(output());
  EXPECT_EQ(lines(night("one") / "episodes.jsonl").size(), 16u);
}

TEST_F(EvalFaults, samples_that_a_server_refused_have_no_verdict_and_are_tried_again_by_the_same_command) {
  AnsweringServer server;
  const auto file = suite_of(server);
  server.refuse_with(429);
  ASSERT_EQ(run_eval({file, "--out", night("one").string(), "tasks.limit=2"}), 5) << text(output());
  Json results = json(night("one") / "results.json");
  EXPECT_EQ(results.at("outcomes").at("infra_error"), 4);
  EXPECT_TRUE(results.at("pass_rate").is_null());
  EXPECT_THAT(results.at("tasks")[0].at("samples")[0].at("why").get<std::string>(), HasSubstr("too much"));
  EXPECT_THAT(text(night("one") / "junit.xml"), HasSubstr("failures=\"0\" errors=\"2\""));
  server.refuse_with(0);
  ASSERT_EQ(run_eval({file, "--out", night("one").string(), "tasks.limit=2"}), 0) << text(output());
  results = json(night("one") / "results.json");
  EXPECT_EQ(results.at("pass_rate"), 1.0);
  EXPECT_EQ(results.at("outcomes").at("infra_error"), 0);
}

TEST_F(EvalFaults, a_model_that_is_half_written_is_named_and_leaves_no_folder_behind) {
  const auto half = root() / "suite/half";
  fs::copy(root() / "model", half, fs::copy_options::recursive);
  fs::resize_file(half / "model.safetensors", fs::file_size(half / "model.safetensors") / 2);
  const auto file = suite("model: half\ntasks: {path: tasks, limit: 1}\n");
  EXPECT_NE(run_eval({file, "--out", night("one").string()}), 0);
  EXPECT_THAT(text(output()), HasSubstr("model.safetensors"));
  EXPECT_FALSE(fs::exists(night("one")));
}

TEST_F(EvalFaults, answers_that_are_none_are_failures_of_the_server_and_no_verdict) {
  AnsweringServer server;
  const auto file = suite_of(server);
  server.talk_nonsense(true);
  ASSERT_EQ(run_eval({file, "--out", night("one").string(), "tasks.limit=1", "samples=1"}), 5) << text(output());
  const Json results = json(night("one") / "results.json");
  EXPECT_EQ(results.at("outcomes").at("infra_error"), 1);
  EXPECT_EQ(results.at("tasks")[0].at("samples")[0].at("attempt"), 3);
}

TEST_F(EvalFaults, where_one_server_is_gone_the_next_one_is_asked) {
  AnsweringServer server;
  std::string gone;
  {
    const AnsweringServer other;
    gone = other.url();
  }
  const auto file = suite("endpoint:\n  url: " + gone + "\n  model: good\n  fallbacks: [\"" + server.url() +
                          "\"]\ntasks: {path: tasks, limit: 2}\nsamples: 1\n");
  ASSERT_EQ(run_eval({file, "--out", night("one").string()}), 0) << text(output());
  EXPECT_EQ(json(night("one") / "results.json").at("pass_rate"), 1.0);
}

TEST_F(EvalFaults, a_dead_endpoint_is_given_up_and_every_sample_says_why) {
  std::string url;
  {
    const AnsweringServer gone;
    url = gone.url();
  }
  const auto file = suite("endpoint: {url: " + url + "}\ntasks: {path: tasks}\nsamples: 1\n");
  Process process(eval({file, "--out", night("one").string()}), output(), {"no_proxy=127.0.0.1"});
  EXPECT_EQ(process.wait(90s), 5) << text(output());
  const Json results = json(night("one") / "results.json");
  EXPECT_EQ(results.at("outcomes").at("infra_error"), kTasks);
  for (const Json& task : results.at("tasks")) {
    EXPECT_TRUE(task.at("samples")[0].at("passed").is_null());
    EXPECT_THAT(task.at("samples")[0].at("why").get<std::string>(), HasSubstr("127.0.0.1"));
  }
}

}  // namespace
}  // namespace tandem
