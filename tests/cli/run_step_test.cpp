// A step of a run as the model of another run, and of commands.
#include "tests/cli/run_fixture.h"

namespace tandem {
namespace {

class RunStepTest : public RunTest {
 protected:
  static const fs::path& a_run() {
    static const fs::path dir = [] {
      const fs::path path = root() / "first-run";
      EXPECT_EQ(run({"run.steps=2", "tasks.heldout=0", kWithSignal, "trainer.keep_checkpoints=all",
                     "trainer.checkpoint_every=1"},
                    path),
                0)
          << text(output());
      return path;
    }();
    return dir;
  }
  static std::string scores(const std::string& model) {
    const fs::path lines = root() / "lines.jsonl", scored = root() / "scored.jsonl";
    EXPECT_TRUE(write_file(lines, "{\"tokens\":[1,2,3,4,5]}\n"));
    EXPECT_EQ(tandem({"score", "--model", model, "--path", "trainer", "--input", lines, "--output", scored}), 0)
        << text(output());
    return text(scored);
  }
};

TEST_F(RunStepTest, a_run_begins_with_the_model_of_another_ones_step_and_keeps_it) {
  const fs::path source = root() / "source", dir = root() / "second-run", exported = root() / "step-1";
  fs::copy(a_run(), source, fs::copy_options::recursive | fs::copy_options::copy_symlinks);
  ASSERT_EQ(tandem({"export", source / "checkpoints" / "step_1", exported}), 0) << text(output());
  const std::string path = "model.path=" + source.string() + "@1";
  ASSERT_EQ(run({"run.steps=1", "tasks.heldout=0", kWithSignal, path}, dir), 0) << text(output());
  EXPECT_NE(text(output()).find("model: step 1 of"), std::string::npos) << text(output());
  EXPECT_FALSE(fs::is_symlink(dir / "model"));
  EXPECT_EQ(digest_of(text(dir / "model" / "model.safetensors")), digest_of(text(exported / "model.safetensors")));
  EXPECT_EQ(json(dir / "origin.json")["step"], 1);
  EXPECT_EQ(json(dir / "origin.json")["run"], source.string());
  expect_same_logprobs(dir);
  fs::remove_all(source);
  EXPECT_EQ(run({"run.steps=2", "tasks.heldout=0", kWithSignal, path}, dir, true), 0)
      << "it needs the other run no more\n"
      << text(output());
  EXPECT_EQ(json(dir / "summary.json")["steps"], 2);
}

TEST_F(RunStepTest, commands_compute_with_the_step_that_is_named) {
  const std::string dir = a_run().string();
  const std::string last = scores(dir + "@last");
  EXPECT_FALSE(last.empty());
  EXPECT_EQ(last, scores(dir + "/export"));
  EXPECT_EQ(last, scores(dir + "@2"));
  EXPECT_EQ(tandem({"tokenize", "--model", dir + "@1", "--input", "/dev/null"}), 0) << text(output());
  EXPECT_EQ(tandem({"export", dir + "@1", root() / "of-a-name"}), 0) << text(output());
  EXPECT_EQ(tandem({"bench", "tokenizer", "--model", dir + "@1", "--seconds", "0"}), 0) << text(output());
  EXPECT_EQ(tandem({"sft", "model=" + dir + "@1", "out=" + (root() / "tuned").string(), "stages.first.steps=1",
                    "stages.second.steps=0", "transcripts_per_step=2"}),
            0)
      << text(output());
  EXPECT_TRUE(fs::exists(root() / "tuned" / "model.safetensors"));
}

TEST_F(RunStepTest, an_agent_is_called_by_its_run_and_step) {
  const fs::path workspace = root() / "workspace", transcript = root() / "transcript.json";
  fs::create_directories(workspace);
  (void)tandem({"agent", "--workspace", workspace, "--model", a_run().string() + "@last", "--max-turns", "1",
                "--max-tokens", "4", "--transcript", transcript, "Do it."});
  EXPECT_EQ(json(transcript)["agent"]["model_name"], "first-run@2") << text(output());
}

TEST_F(RunStepTest, what_names_no_model_is_refused_with_what_there_is) {
  const std::string dir = a_run().string();
  for (const auto& [named, words] :
       {std::pair(dir, "@last"), std::pair(dir, "export is its trained model"), std::pair(dir + "@7", "it has 1, 2"),
        std::pair(dir + "@lst", "did you mean \"last\""), std::pair(dir + "@best", "tasks.heldout_every")}) {
    EXPECT_EQ(tandem({"score", "--model", named, "--path", "trainer", "--input", "/dev/null"}), 2) << text(output());
    EXPECT_NE(text(output()).find(words), std::string::npos) << text(output());
    EXPECT_EQ(tandem({"sft", "model=" + named, "out=" + (root() / "no-model").string()}), 2) << text(output());
    EXPECT_NE(text(output()).find(words), std::string::npos) << text(output());
    EXPECT_EQ(run({"model.path=" + named}, root() / "refused"), 2) << text(output());
    EXPECT_NE(text(output()).find(words), std::string::npos) << text(output());
  }
}

}  // namespace
}  // namespace tandem
