// `tandem export`: what is written is what was trained, whole or not at all.
#include <cstring>
#include <fstream>

#include "model/safetensors.h"
#include "tests/cli/run_fixture.h"

namespace tandem {
namespace {

class Export : public RunTest {
 protected:
  static void SetUpTestSuite() {
    RunTest::SetUpTestSuite();
    ASSERT_EQ(run({"run.steps=3", "tasks.heldout=0", "trainer.checkpoint_every=2", kWithSignal}, run_dir()), 0)
        << text(output());
  }
  static fs::path run_dir() { return root() / "run"; }
  static Digest weights_of(const fs::path& folder) { return digest_of(text(folder / "model.safetensors")); }
};

TEST_F(Export, a_runs_newest_checkpoint_is_what_the_run_itself_exported) {
  const fs::path out = root() / "exported", again = root() / "exported-again";
  ASSERT_EQ(tandem({"export", run_dir(), out, "--verify", "--json"}), 0) << text(output());
  const Json said = json(output());
  EXPECT_EQ(said["verified"], true);
  EXPECT_GT(said["logprobs_compared"].get<int>(), 30);
  EXPECT_EQ(weights_of(out), weights_of(run_dir() / "export"));
  for (const char* name : {"config.json", "generation_config.json", "tokenizer.json", "tokenizer_config.json"})
    EXPECT_EQ(text(out / name), text(run_dir() / "export" / name)) << name;
  // A model directory goes through unchanged.
  std::ofstream(out / "LICENSE") << "free";
  ASSERT_EQ(tandem({"export", out, again, "--verify"}), 0) << text(output());
  EXPECT_NE(text(output()).find("left behind: LICENSE; copy"), std::string::npos) << text(output());
  EXPECT_EQ(weights_of(again), weights_of(out));
}

TEST_F(Export, a_checkpoint_on_the_way_is_another_model) {
  const fs::path out = root() / "half-way";
  ASSERT_EQ(tandem({"export", run_dir() / "checkpoints" / "step_2", out, "--verify"}), 0) << text(output());
  EXPECT_NE(weights_of(out), weights_of(run_dir() / "export"));
  EXPECT_NE(text(output()).find("the same by engine and trainer"), std::string::npos) << text(output());
}

TEST_F(Export, in_any_format_has_the_same_numbers) {
  const fs::path single = root() / "single", half = root() / "half", back = root() / "back";
  ASSERT_EQ(tandem({"export", run_dir(), single, "--dtype", "float32", "--verify"}), 0) << text(output());
  EXPECT_EQ(json(single / "config.json")["torch_dtype"], "float32");
  ASSERT_EQ(tandem({"export", single, back, "--verify"}), 0) << text(output());
  EXPECT_EQ(weights_of(back), weights_of(run_dir() / "export"));
  // The masters, and not what they were rounded to.
  const auto masters = model::Safetensors::open(single);
  ASSERT_TRUE(masters) << masters.error().to_string();
  size_t finer = 0, numbers = 0;
  for (const auto& [name, tensor] : masters->tensors()) {
    for (size_t i = 0; i + 4 <= tensor.bytes.size(); i += 4, ++numbers) {
      uint32_t bits = 0;
      std::memcpy(&bits, tensor.bytes.data() + i, sizeof bits);
      finer += (bits & 0xffff) != 0;
    }
  }
  EXPECT_GT(finer, numbers / 10);
  ASSERT_EQ(tandem({"export", run_dir(), half, "--dtype", "float16", "--verify", "--json"}), 0) << text(output());
  EXPECT_EQ(json(half / "config.json")["torch_dtype"], "float16");
  EXPECT_GT(json(output())["rounded"].get<int>(), 0);
  const fs::path of_bf16 = root() / "of-bf16";
  ASSERT_EQ(tandem({"export", run_dir() / "export", of_bf16, "--dtype", "float16", "--json"}), 0) << text(output());
  EXPECT_LT(json(output())["rounded"].get<int>(), json(output())["parameters"].get<int>() / 10);
  EXPECT_EQ(tandem({"export", run_dir(), root() / "never", "--dtype", "int4"}), 2);
}

TEST_F(Export, what_cannot_be_exported_is_named_and_nothing_is_left) {
  const fs::path out = root() / "never";
  EXPECT_EQ(tandem({"export", root() / "nowhere", out}), 1);
  EXPECT_NE(text(output()).find("neither a run, nor a checkpoint"), std::string::npos) << text(output());

  const fs::path damaged = root() / "checkpoints" / "step_3";
  std::error_code error;
  ASSERT_TRUE(make_directories(damaged.parent_path()));
  fs::copy(run_dir() / "checkpoints" / "step_3", damaged, fs::copy_options::recursive, error);
  ASSERT_FALSE(error) << error.message();
  EXPECT_EQ(tandem({"export", damaged, out, "--model", root() / "model"}), 0) << text(output());
  fs::remove_all(out);
  {
    std::fstream file(damaged / "optimizer.safetensors", std::ios::in | std::ios::out | std::ios::binary);
    file.seekp(100'000);
    file.put('x');
  }
  EXPECT_NE(tandem({"export", damaged, out, "--model", root() / "model"}), 0);
  EXPECT_NE(text(output()).find("masters is damaged"), std::string::npos) << text(output());
  EXPECT_FALSE(fs::exists(out));

  const fs::path taken = root() / "taken";
  ASSERT_TRUE(make_directories(taken / "something"));
  EXPECT_NE(tandem({"export", run_dir(), taken}), 0);
  EXPECT_NE(text(output()).find("is there already"), std::string::npos) << text(output());
  for (const auto& entry : fs::directory_iterator(root()))
    EXPECT_EQ(entry.path().string().find(".tmp"), std::string::npos) << entry.path();
}

}  // namespace
}  // namespace tandem
