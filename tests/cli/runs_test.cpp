// What a run leaves, by the commands: the list of runs, what goes, its episodes as data sets.
#include <algorithm>

#include "tests/cli/run_fixture.h"

namespace tandem {
namespace {

class LeftRunTest : public RunTest {
 protected:
  // A run of two steps, once for all tests here.
  static const fs::path& a_run() {
    static const fs::path dir = [] {
      const fs::path path = root() / "runs" / "left";
      fs::create_directories(path.parent_path());
      EXPECT_EQ(run({"run.steps=2", "tasks.heldout=2", "tasks.floors=false", "trainer.keep_checkpoints=all",
                     "trainer.checkpoint_every=1"},
                    path),
                0)
          << text(output());
      return path;
    }();
    return dir;
  }
  static std::vector<Json> exported(Arguments arguments, const fs::path& file) {
    arguments.insert(arguments.begin(), {TANDEM_BINARY, "episodes", a_run().string()});
    EXPECT_EQ(Process(arguments, file).wait(), 0) << text(file);
    std::vector<Json> lines;
    const std::string all = text(file);
    for (const auto line : split_lines(all)) {
      if (line.starts_with("tandem episodes: ")) continue;  // how many cannot be told
      auto parsed = parse_json(line);
      EXPECT_TRUE(parsed) << line;
      if (parsed) lines.push_back(std::move(*parsed));
    }
    return lines;
  }
};

TEST_F(LeftRunTest, a_run_is_listed_with_state_success_and_cost) {
  const fs::path dir = a_run();
  ASSERT_EQ(tandem({"runs", dir.parent_path().string(), "--json"}), 0) << text(output());
  const auto entry = parse_json(text(output()));
  ASSERT_TRUE(entry) << text(output());
  EXPECT_EQ((*entry)["state"], "done");
  EXPECT_EQ((*entry)["step"], 2);
  EXPECT_TRUE((*entry)["heldout"]["ci95"].is_array());
  EXPECT_GT((*entry)["core_seconds"].get<double>(), 0);
  EXPECT_EQ((*entry)["gpu_seconds"], 0.0);
  EXPECT_EQ((*entry)["problem"], Json());
  ASSERT_EQ(tandem({"runs", "compare", dir.string(), dir.string()}), 0) << text(output());
  EXPECT_NE(text(output()).find("the configs are the same"), std::string::npos) << text(output());
  EXPECT_NE(text(output()).find("+0.0 points"), std::string::npos) << text(output());
}

TEST_F(LeftRunTest, episodes_are_told_as_messages_that_sft_reads) {
  const auto told = exported({"--export", "openai"}, root() / "chats.jsonl");
  const auto all = episodes(a_run(), true);
  const auto spoken = std::count_if(
      all.begin(), all.end(), [](const Json& one) { return !one["tokens"].empty() && one["outcome"].is_string(); });
  // What a random model says may read back as other tokens: such an episode is left out, and counted on stderr.
  EXPECT_LE(told.size(), static_cast<size_t>(spoken));
  EXPECT_GE(10 * told.size(), 9 * static_cast<size_t>(spoken)) << "every episode that said something is told";
  ASSERT_FALSE(told.empty());
  EXPECT_EQ(told[0]["messages"][0]["role"], "system");
  const auto atif = exported({"--export", "atif", "--split", "train"}, root() / "atif.jsonl");
  EXPECT_LT(atif.size(), told.size());
  ASSERT_FALSE(atif.empty());
  EXPECT_EQ(atif[0]["schema_version"], "ATIF-v1.7");
  for (const char* file : {"chats.jsonl", "atif.jsonl"}) {
    EXPECT_EQ(tandem({"sft", TANDEM_SOURCE_DIR "/configs/sft.yaml", "model=" + (root() / "model").string(),
                      "data.tool_calls=text", "data.train=[" + (root() / file).string() + "]",
                      "data.validation_share=0", "validation.patience=0", "--dry-run"}),
              0)
        << file << "\n"
        << text(output());
    EXPECT_NE(text(output()).find("transcripts"), std::string::npos) << text(output());
  }
}

TEST_F(LeftRunTest, episodes_that_began_on_a_base_with_open_hosts_are_told) {
  const fs::path set = root() / "on-a-base", dir = root() / "on-a-base-run";
  fs::create_directories(set / "repo.files");
  ASSERT_TRUE(write_file(set / "repo.files" / "notes.txt", "alpha\n"));
  ASSERT_TRUE(write_file(set / "t.yaml",
                         "base: {folder: repo.files}\ninstruction: Write a.\nturns: 1\n"
                         "check: {files_after: {a: b}}\nsolution: {files: {a: b}}\n"));
  (void)run({"run.steps=1", "tasks.path=" + set.string(), "tasks.heldout=0", "tasks.heldout_share=0",
             "env.network=[packages.example]"},
            dir);
  ASSERT_EQ(tandem({"episodes", dir.string(), "--export", "openai"}), 0) << text(output());
  EXPECT_EQ(text(output()).find("its prompt is not that of its task"), std::string::npos) << text(output());
  EXPECT_NE(text(output()).find("notes.txt"), std::string::npos) << text(output());
}

TEST_F(LeftRunTest, datasets_reads_what_is_told_and_makes_parquet_of_it) {
  const auto python = [](const std::string& program) {
    return Process({"/usr/bin/env", "python3", "-c", program}, output()).wait();
  };
  if (python("import datasets") != 0) GTEST_SKIP() << "Python's datasets is not installed";
  const auto told = exported({"--export", "openai"}, root() / "chats.jsonl");
  const std::string program = "import datasets\nd = datasets.load_dataset('json', data_files='" +
                              (root() / "chats.jsonl").string() + "', split='train', cache_dir='" +
                              (root() / "cache").string() + "')\nd.to_parquet('" + (root() / "chats.parquet").string() +
                              "')\nd = datasets.load_dataset('parquet', data_files='" +
                              (root() / "chats.parquet").string() + "', split='train', cache_dir='" +
                              (root() / "cache").string() + "')\nassert len(d) == " + std::to_string(told.size()) +
                              ", len(d)\nassert d[0]['messages'][0]['role'] == 'system'";
  EXPECT_EQ(python(program), 0) << text(output());
  std::error_code ignored;
  fs::remove_all(root() / "cache", ignored);
}

TEST_F(LeftRunTest, pruning_shows_then_removes_and_leaves_a_run_that_goes_on) {
  const fs::path dir = root() / "pruned";
  fs::copy(a_run(), dir, fs::copy_options::recursive | fs::copy_options::copy_symlinks);
  const Arguments prune = {"runs", "prune", dir.string(), "--keep", "checkpoints=1", "--keep", "trajectories=0s"};
  Arguments dry = prune;
  dry.push_back("--dry-run");
  ASSERT_EQ(tandem(dry), 0) << text(output());
  EXPECT_NE(text(output()).find("would go"), std::string::npos) << text(output());
  EXPECT_TRUE(fs::exists(dir / "checkpoints" / "step_1"));
  ASSERT_EQ(tandem(prune), 0) << text(output());
  EXPECT_FALSE(fs::exists(dir / "checkpoints" / "step_1"));
  EXPECT_FALSE(fs::exists(dir / "trajectories"));
  EXPECT_TRUE(fs::exists(dir / "export") && fs::exists(dir / "checkpoints" / "step_2"));
  EXPECT_EQ(tandem({"runs", "prune", dir.string()}), 2) << text(output());
  EXPECT_EQ(tandem({"runs", "prune", dir.string(), "--keep", "checkpoint=1"}), 2);
  EXPECT_NE(text(output()).find("did you mean \"checkpoints\""), std::string::npos) << text(output());
  EXPECT_EQ(run({"run.steps=3", "tasks.heldout=2", "tasks.floors=false"}, dir, true), 0) << text(output());
  EXPECT_EQ(json(dir / "summary.json")["steps"], 3);
}

TEST_F(LeftRunTest, nothing_of_a_run_that_is_on_goes) {
  const fs::path dir = root() / "on";
  Process process(
      command({"run.steps=100000", "tasks.heldout=0", "trainer.keep_checkpoints=all", "trainer.checkpoint_every=1"},
              dir),
      output());
  ASSERT_TRUE(reaches_step(process, dir, 3)) << text(output());
  ASSERT_TRUE(within(60s, [&] { return fs::exists(dir / "checkpoints" / "step_1"); }));
  const fs::path said = root() / "said";
  EXPECT_EQ(Process({TANDEM_BINARY, "runs", "prune", dir.string(), "--keep", "checkpoints=1", "--drop", "killed",
                     "--drop", "empty"},
                    said)
                .wait(),
            0)
      << text(said);
  EXPECT_NE(text(said).find("is on, and left alone"), std::string::npos) << text(said);
  EXPECT_TRUE(fs::exists(dir / "checkpoints" / "step_1"));
  process.signal(SIGTERM);
  EXPECT_EQ(process.wait(), 75) << text(output());
}

}  // namespace
}  // namespace tandem
