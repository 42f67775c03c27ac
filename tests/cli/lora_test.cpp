// LoRA from transcripts and from a run: what is written merged is what the adapter beside it makes of the model.
#include "tests/cli/run_fixture.h"

namespace tandem {
namespace {

const fs::path kGolden = fs::path(TANDEM_SOURCE_DIR) / "tests" / "golden" / "sft";

class Lora : public RunTest {
 protected:
  static int sft(const fs::path& out, const Arguments& more) {
    Arguments arguments = {"sft",
                           "model=" + (kGolden / "model").string(),
                           "data.train=[" + (kGolden / "chats.jsonl").string() + "]",
                           "out=" + out.string(),
                           "threads=1",
                           "trainer.learning_rate=1e-2",
                           "lora.rank=4"};
    arguments.insert(arguments.end(), more.begin(), more.end());
    return tandem(arguments);
  }
  static std::string scores(const Arguments& model) {
    const fs::path lines = root() / "lines", answers = root() / "answers";
    EXPECT_TRUE(write_file(lines, "{\"tokens\":[3,5,8,13,21,34,55]}\n"));
    Arguments arguments = {"score", "--input", lines, "--output", answers};
    arguments.insert(arguments.end(), model.begin(), model.end());
    EXPECT_EQ(tandem(arguments), 0) << text(output());
    return text(answers);
  }
  // `out` is `model` with the adapter beside it, whichever way it is put in.
  static void expect_merged(const fs::path& model, const fs::path& out, const std::string& name) {
    const fs::path adapter = out / "adapter", again = root() / (name + "-again");
    ASSERT_EQ(tandem({"import", "--model", model, "--adapter", adapter, again}), 0) << text(output());
    EXPECT_EQ(digest_of(text(again / "model.safetensors")), digest_of(text(out / "model.safetensors")));
    const std::string merged = scores({"--model", out});
    EXPECT_EQ(scores({"--model", model, "--adapter", adapter}), merged);
    EXPECT_NE(scores({"--model", model}), merged);
  }
  static bool says(std::string_view words) { return text(output()).find(words) != std::string::npos; }
};

TEST_F(Lora, trained_on_transcripts_is_a_model_and_the_adapter_that_makes_it) {
  const fs::path out = root() / "tuned";
  ASSERT_EQ(sft(out, {"trainer.steps=6", "lora.targets=[q_proj, down_proj]"}), 0) << text(output());
  expect_merged(kGolden / "model", out, "tuned");
  const Json config = json(out / "adapter" / "adapter_config.json");
  EXPECT_EQ(config["target_modules"], (Json{"down_proj", "q_proj"}));
  EXPECT_EQ(config["r"], 4);
  // Beside the weights it makes nearly the same, by engine and trainer with the same bits.
  const std::string live = scores({"--model", kGolden / "model", "--adapter", out / "adapter", "--live"});
  EXPECT_NE(live, scores({"--model", kGolden / "model"}));
  for (const char* path : {"engine", "trainer"})
    EXPECT_EQ(scores({"--model", kGolden / "model", "--adapter", out / "adapter", "--live", "--path", path}), live);
  EXPECT_EQ(tandem({"score", "--model", kGolden / "model", "--live"}), 2);
  // The next begins where this one ended.
  const fs::path further = root() / "further";
  ASSERT_EQ(sft(further, {"trainer.steps=1", "trainer.learning_rate=0", "lora.targets=[q_proj, down_proj]",
                          "lora.start=" + (out / "adapter").string()}),
            0)
      << text(output());
  EXPECT_EQ(digest_of(text(further / "model.safetensors")), digest_of(text(out / "model.safetensors")));
}

TEST_F(Lora, what_cannot_be_is_said_before_anything_is_trained) {
  EXPECT_EQ(sft(root() / "none", {"lora.targets=[q_prj]"}), 2);
  EXPECT_TRUE(says("no matrix q_prj; did you mean q_proj?")) << text(output());
  EXPECT_EQ(sft(root() / "none", {"trainer.optimizer=muon"}), 2);
  EXPECT_TRUE(says("take adamw with lora.rank")) << text(output());
  EXPECT_EQ(sft(root() / "none", {"lora.start=" + (root() / "nowhere").string()}), 1);
  EXPECT_TRUE(says("nowhere/adapter_config.json")) << text(output());
  for (const fs::path& folder : {fs::path(), root() / "model"}) {
    Arguments arguments = {"run", TANDEM_SOURCE_DIR "/configs/tiny.yaml", "--dry-run", "lora.rank=4"};
    if (!folder.empty()) arguments.push_back("model.path=" + folder.string());
    arguments.push_back("lora.targets=[q_prj]");
    EXPECT_EQ(tandem(arguments), 2);
    EXPECT_TRUE(says("no matrix q_prj; did you mean q_proj?")) << text(output());
    arguments.back() = "lora.start=" + (root() / "nowhere").string();
    EXPECT_EQ(tandem(arguments), 1);
    EXPECT_TRUE(says("nowhere/adapter_config.json")) << text(output());
  }
  EXPECT_FALSE(fs::exists(root() / "none"));
}

TEST_F(Lora, of_a_run_samples_and_trains_with_the_same_bits) {
  const fs::path run_dir = root() / "run-lora";
  ASSERT_EQ(run({"run.steps=3", kWithSignal, "lora.rank=4", "trainer.learning_rate=1e-2"}, run_dir), 0)
      << text(output());
  expect_same_logprobs(run_dir);
  expect_books_to_agree(run_dir);
  expect_merged(root() / "model", run_dir / "export", "run");
  // And so from a checkpoint, whose factors are those that the run wrote.
  const fs::path exported = root() / "exported";
  ASSERT_EQ(tandem({"export", run_dir, exported, "--verify"}), 0) << text(output());
  EXPECT_TRUE(says("exported/adapter, rank 4 on ")) << text(output());
  for (const char* file : {"adapter_config.json", "adapter_model.safetensors"})
    EXPECT_EQ(text(exported / "adapter" / file), text(run_dir / "export" / "adapter" / file)) << file;
  expect_merged(root() / "model", exported, "exported");
}

}  // namespace
}  // namespace tandem
