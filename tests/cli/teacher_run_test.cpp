// Runs with a teacher: what they record, that they have the same bits however they are cut and shared out, and which
// teachers are refused.
#include <cmath>
#include <sstream>

#include "tests/cli/run_fixture.h"

namespace tandem {
namespace {

class TeacherRun : public RunTest {
 protected:
  // A run whose last step teaches.
  static const fs::path& teaching() {
    static const fs::path run_dir = [] {
      const fs::path path = root() / "teaching";
      EXPECT_EQ(run({"run.steps=2", "tasks.heldout=0", "run.seed=3"}, path), 0) << text(output());
      return path;
    }();
    return run_dir;
  }
  static Arguments taught(int steps, const Arguments& more) {
    Arguments arguments = {"run.deterministic=true",
                           "tasks.heldout=0",
                           "trainer.max_lag=0",
                           "trainer.checkpoint_every=3",
                           "run.seed=3",
                           "algorithm.teacher.path=" + teaching().string() + "@last",
                           "run.steps=" + std::to_string(steps)};
    arguments.insert(arguments.end(), more.begin(), more.end());
    return arguments;
  }
  static void expect_taught(const fs::path& run_dir, int steps) {
    std::istringstream lines(text(run_dir / "metrics.jsonl"));
    int seen = 0;
    for (std::string line; std::getline(lines, line); ++seen) {
      const Json metrics = parse_json(line)->value("loss_metrics", Json::object());
      ASSERT_TRUE(metrics.contains("teacher_kl")) << line;
      EXPECT_TRUE(std::isfinite(metrics["teacher_kl"].get<double>())) << line;
      EXPECT_GE(metrics["teacher_unlikely"].get<double>(), 0) << line;
      EXPECT_LE(metrics["teacher_unlikely"].get<double>(), 1) << line;
    }
    EXPECT_GE(seen, steps);
  }
};

TEST_F(TeacherRun, trains_every_group_and_has_the_same_bits_with_ranks_after_an_interrupt_and_in_a_replay) {
  constexpr int kSteps = 24;
  const fs::path whole = root() / "taught";
  ASSERT_EQ(run(taught(kSteps, {"algorithm.advantage=distill", "trainer.keep_checkpoints=all"}), whole), 0)
      << text(output());
  expect_taught(whole, kSteps);
  expect_books_to_agree(whole);
  EXPECT_FALSE(json(whole / "summary.json")["episodes"]["dropped"].contains("no_signal"));
  EXPECT_NE(text(whole / "report.html").find("Distance from the teacher"), std::string::npos);
  ASSERT_EQ(tandem({"replay", whole.string(), "--step", "5"}), 0) << text(output());

  const fs::path cut = root() / "taught-cut";
  {
    Process process(command(taught(kSteps, {"algorithm.advantage=distill", "trainer.ranks=2"}), cut), output());
    ASSERT_TRUE(reaches_step(process, cut, 2)) << text(output());
    process.signal(SIGTERM);
    ASSERT_EQ(process.wait(), 75) << text(output());
  }
  EXPECT_EQ(run({"algorithm.teacher.path=" + (root() / "model").string()}, cut, true), 2);
  EXPECT_NE(text(output()).find("algorithm.teacher.path is "), std::string::npos) << text(output());
  // The run has what it was taught by.
  fs::rename(teaching(), root() / "gone");
  const int resumed = run({}, cut, true);
  fs::rename(root() / "gone", teaching());
  ASSERT_EQ(resumed, 0) << text(output());
  expect_taught(cut, kSteps);
  EXPECT_EQ(export_digest(cut), export_digest(whole));
  expect_nothing_left(cut);
}

TEST_F(TeacherRun, alone_needs_no_second_episode_of_a_task) {
  const fs::path run_dir = root() / "taught-singles";
  const Arguments singles = {"algorithm.advantage=distill", "trainer.group_size=1", "trainer.groups_per_step=8"};
  ASSERT_EQ(run(taught(2, singles), run_dir), 0) << text(output());
  expect_taught(run_dir, 2);
  EXPECT_EQ(json(run_dir / "summary.json")["episodes"]["trained"], 16);
  EXPECT_EQ(run(taught(2, {"trainer.group_size=1"}), root() / "refused-singles"), 2);
  EXPECT_NE(text(output()).find("trainer.group_size is 1"), std::string::npos) << text(output());
}

TEST_F(TeacherRun, adds_to_the_advantages_of_an_algorithm_of_several_updates) {
  const Arguments more = {"algorithm.name=grpo", "algorithm.teacher.weight=0.1", "trainer.epochs=2"};
  const fs::path taught_dir = root() / "taught-grpo";
  ASSERT_EQ(run(taught(3, more), taught_dir), 0) << text(output());
  expect_taught(taught_dir, 3);
  ASSERT_EQ(tandem({"replay", taught_dir.string(), "--step", "3"}), 0) << text(output());
}

TEST_F(TeacherRun, another_vocabulary_is_refused_before_anything_starts_and_memory_counts_the_teacher) {
  const fs::path model = root() / "model", other = root() / "other-vocabulary";
  fs::copy(model, other, fs::copy_options::recursive);
  fs::copy_file(TANDEM_SOURCE_DIR "/tests/golden/tokenizers/llama3/tokenizer.json", other / "tokenizer.json",
                fs::copy_options::overwrite_existing);
  const auto plan = [&](const fs::path& teacher, const std::string& device = "cpu:avx2") {
    return tandem({"run", TANDEM_SOURCE_DIR "/configs/tiny.yaml", "--dry-run", "--json", "model.path=" + model.string(),
                   "algorithm.advantage=distill", "algorithm.teacher.path=" + teacher.string(),
                   "trainer.device=" + device});
  };
  const auto memory_of_trainer = [&] {
    std::istringstream lines(text(output()));
    Json said;
    for (std::string line; std::getline(lines, line);) {
      if (line.starts_with('{')) said = *parse_json(line);
    }
    return said["memory"]["trainer"];
  };
  EXPECT_EQ(plan(other), 2);
  EXPECT_NE(text(output()).find("algorithm.teacher.path: the teacher " + other.string() +
                                " has another tokenizer than the model " + model.string()),
            std::string::npos)
      << text(output());
  EXPECT_EQ(tandem({"run", TANDEM_SOURCE_DIR "/configs/tiny.yaml", "--dry-run", "algorithm.shuffle_rewards=true",
                    "algorithm.teacher.path=" + model.string()}),
            2);
  EXPECT_NE(text(output()).find("the teacher would still teach"), std::string::npos) << text(output());
  EXPECT_NE(plan(root() / "no-such-model"), 0);
  EXPECT_NE(text(output()).find("algorithm.teacher.path: "), std::string::npos) << text(output());
  ASSERT_EQ(plan(model), 0) << text(output());
  const Json memory = memory_of_trainer();
  EXPECT_GT(memory["teacher"].get<double>(), memory["weights of the step before"].get<double>());
  // A device has the sum of the slots, too.
  ASSERT_EQ(plan(model, "emulated:0"), 0) << text(output());
  EXPECT_GT(memory_of_trainer()["gradients of slots, on the device"].get<double>(),
            memory["gradients of slots"].get<double>());
}

}  // namespace
}  // namespace tandem
