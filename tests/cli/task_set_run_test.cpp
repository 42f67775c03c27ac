// Runs on tasks that somebody wrote, on the tiny model.
#include <gmock/gmock.h>

#include <fstream>
#include <set>

#include "kernels/formats/bf16.h"
#include "model/weights.h"
#include "tests/cli/run_fixture.h"

namespace tandem {
namespace {

using testing::HasSubstr;

class TaskSetRun : public RunTest {
 protected:
  static fs::path tasks() { return root() / "tasks"; }
  static void put(const std::string& name, const std::string& word) {
    fs::create_directories((tasks() / name).parent_path());
    std::ofstream(tasks() / (name + ".yaml")) << "instruction: Write " << word << " into BIDU.\n"
                                              << "files: {start.txt: nothing here}\n"
                                              << "turns: 2\nends_on_change: true\n"
                                              << "check: {files_after: {BIDU: " << word << "}}\n"
                                              << "solution: {files: {BIDU: " << word << "}}\n";
  }
  void SetUp() override {
    fs::remove_all(tasks());
    put("short/one", "MATO");
    put("short/two", "NIRU");
    put("long/three", "SEPO");
  }
  static Arguments with_tasks(Arguments more) {
    more.push_back("tasks.path=" + tasks().string());
    return more;
  }
};

// A failure of every episode is none of the policy's, and no success.
TEST_F(TaskSetRun, episodes_that_all_fail_to_begin_end_a_run_as_incomplete) {
  fs::remove_all(tasks());
  fs::create_directories(tasks() / "w");
  std::ofstream(tasks() / "w" / "bad.yaml") << "instruction: Write X into f.\nfiles: {start.txt: hello}\n"
                                            << "setup: [\"exit 3\"]\nturns: 2\nends_on_change: true\n"
                                            << "check: {files_after: {f: X}}\nsolution: {files: {f: X}}\n";
  const fs::path run_dir = root() / "all-fail";
  // To the end of the run: what stops it before is another test's.
  const Arguments wanted = {"run.steps=2", "tasks.heldout=0", "tasks.heldout_share=0", "run.unscored_steps=100"};
  EXPECT_EQ(run(with_tasks(wanted), run_dir), 5) << text(output());
  EXPECT_THAT(text(output()), HasSubstr("no training episode had a reward"));
  EXPECT_THAT(text(output()), HasSubstr("outcomes         infra_error "));
  EXPECT_EQ(json(run_dir / "summary.json")["exit"], 5);
  expect_books_to_agree(run_dir);
}

TEST_F(TaskSetRun, three_tasks_are_trained_on_and_measured_with_books_that_agree) {
  const fs::path run_dir = root() / "set";
  ASSERT_EQ(run(with_tasks({"run.steps=3", "tasks.heldout=10", "tasks.heldout_share=0.5", kWithSignal}), run_dir), 0)
      << text(output());
  expect_books_to_agree(run_dir);
  expect_nothing_left(run_dir);
  const Json record = json(run_dir / "tasks.json");
  std::set<std::string> train, heldout;
  for (const Json& task : record["tasks"]) {
    auto& side = task["split"] == "train" ? train : heldout;
    side.insert(task["kind"].get<std::string>() + "/" + task["split"].get<std::string>() + "/" +
                std::to_string(task["number"].get<int>()));
  }
  ASSERT_EQ(train.size() + heldout.size(), 3u);
  ASSERT_FALSE(train.empty());
  ASSERT_FALSE(heldout.empty());
  std::set<std::string> trained, measured;
  for (const Json& episode : episodes(run_dir)) {
    const auto split = episode["split"].get<std::string>();
    (split == "train" ? trained : measured).insert(episode["task"].get<std::string>());
    EXPECT_TRUE(episode["outcome"] == "completed" || episode["outcome"] == "truncated") << episode["outcome"];
  }
  EXPECT_EQ(trained, train);
  EXPECT_EQ(measured, heldout);
  EXPECT_EQ(json(run_dir / "summary.json")["heldout"]["before"]["n_tasks"].get<size_t>(), heldout.size());
  expect_same_logprobs(run_dir);
}

TEST_F(TaskSetRun, a_run_does_not_go_on_with_other_tasks_than_it_began_with) {
  const fs::path run_dir = root() / "changed";
  ASSERT_EQ(run(with_tasks({"run.steps=1", "tasks.heldout=0", "tasks.heldout_share=0"}), run_dir), 0) << text(output());
  put("short/two", "TAMU");
  EXPECT_EQ(run(with_tasks({"run.steps=2"}), run_dir, true), 2);
  EXPECT_THAT(text(output()), HasSubstr("task short/two is another one"));
  put("short/two", "NIRU");
  EXPECT_EQ(run(with_tasks({"run.steps=2"}), run_dir, true), 0) << text(output());
  EXPECT_EQ(json(run_dir / "summary.json")["steps"], 2);
}

TEST_F(TaskSetRun, an_answer_ends_a_step_and_the_model_goes_on_with_the_next_instruction) {
  fs::remove_all(tasks());
  const auto folder = tasks() / "two" / "steps";
  const auto write = [&](const fs::path& name, const std::string& content) {
    fs::create_directories((folder / name).parent_path());
    std::ofstream(folder / name) << content;
  };
  write("task.toml", "[[steps]]\nname = \"a\"\n[[steps]]\nname = \"b\"\n");
  write("environment/Dockerfile", "FROM debian\nWORKDIR /app\n");
  for (const std::string step : {"a", "b"}) {
    write("steps/" + step + "/instruction.md", "Write MATO into BIDU.\n");
    // A step needs episodes of unlike rewards, whatever the model does.
    write("steps/" + step + "/tests/test.sh",
          "echo $(($(od -An -N1 -tu1 /dev/urandom) % 2)) > /logs/verifier/reward.txt\n");
  }
  // One that rambles, and stops at many a token: the tiny model makes calls until its tokens are used up, and answers
  // once in hundreds of episodes.
  const fs::path rambling = root() / "rambling", run_dir = root() / "steps";
  auto weights = model::load_weights(root() / "model", false);
  ASSERT_TRUE(weights) << weights.error().to_string();
  const auto& norm = weights->layout().parameters.at(weights->layout().final_norm);
  for (kernels::bf16& scale : weights->flat().subspan(norm.offset, norm.columns))
    scale = kernels::to_bf16(kernels::to_float(scale) / 64);
  ASSERT_TRUE(model::save_weights(*weights, rambling, root() / "model"));
  Json generation = json(rambling / "generation_config.json");
  generation["eos_token_id"] = {2, 100, 101, 102, 103, 104, 105, 106, 107, 108, 109, 110, 111, 112, 113, 114};
  ASSERT_TRUE(write_file(rambling / "generation_config.json", dump_json(generation)));
  ASSERT_EQ(run(with_tasks({"run.steps=2", "model.path=" + rambling.string(), "rollout.max_new_tokens=240",
                            "rollout.max_tokens=1024", "tasks.heldout=0", "tasks.heldout_share=0"}),
                run_dir),
            0)
      << text(output());
  size_t in_second = 0;
  for (const Json& episode : episodes(run_dir)) {
    ASSERT_TRUE(episode["terms"].contains("step a")) << episode;
    in_second += episode["terms"].contains("step b") ? 1 : 0;
  }
  EXPECT_GT(in_second, 0u);
  expect_books_to_agree(run_dir);
  expect_nothing_left(run_dir);
}

TEST_F(TaskSetRun, what_is_wrong_with_a_set_is_told_before_anything_starts) {
  const fs::path run_dir = root() / "refused";
  EXPECT_EQ(run(with_tasks({"tasks.heldout_share=1"}), run_dir), 2);
  EXPECT_THAT(text(output()), HasSubstr("all 3 tasks"));
  EXPECT_EQ(run(with_tasks({"tasks.set_kinds=[shrt]"}), run_dir), 2);
  EXPECT_THAT(text(output()), HasSubstr("did you mean \"short\""));
  EXPECT_EQ(run(with_tasks({R"(algorithm.kinds=["shrt=gspo"])"}), run_dir), 2);
  EXPECT_THAT(text(output()), HasSubstr("no tasks of kind \"shrt\"; did you mean \"short\"?"));
  EXPECT_FALSE(fs::exists(run_dir));
  EXPECT_EQ(run({"tasks.set_kinds=[short]"}, run_dir), 2);
  EXPECT_THAT(text(output()), HasSubstr("tasks.set_kinds needs tasks.path"));
  EXPECT_EQ(run({"tasks.path=" + (root() / "nowhere").string()}, run_dir), 1);
  std::ofstream(tasks() / "bad.yaml") << "instruction: x\nchek: {}\n";
  EXPECT_EQ(run(with_tasks({}), run_dir), 2);
  EXPECT_THAT(text(output()), HasSubstr("bad.yaml:2: unknown key chek in the task; did you mean \"check\"?"));
  std::ofstream(tasks() / "bad.yaml") << "instruction: x\nneeds: [no-such-program]\ncheck: {answer: y}\n";
  EXPECT_EQ(run(with_tasks({}), run_dir), 3);
  EXPECT_THAT(text(output()), HasSubstr("bad needs no-such-program"));
  EXPECT_FALSE(fs::exists(run_dir));
}

}  // namespace
}  // namespace tandem
