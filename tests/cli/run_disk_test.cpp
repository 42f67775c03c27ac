// What a run writes, said beforehand and held against what it wrote; and a run that has no more room.
#include <gmock/gmock.h>

#include "tests/cli/run_fixture.h"

namespace tandem {
namespace {

using testing::HasSubstr;

class RunDisk : public RunTest {};

TEST_F(RunDisk, what_a_dry_run_says_of_the_disk_is_what_a_run_writes) {
  const fs::path run_dir = root() / "grown";
  const Arguments wanted = {"run.steps=2", "tasks.heldout=0", "trainer.checkpoint_every=1"};
  Arguments dry = command(wanted, root() / "dry");
  dry.insert(dry.end(), {"--dry-run", "--json"});
  ASSERT_EQ(Process(dry, output()).wait(), 0) << text(output());
  const std::string all = text(output());
  const size_t begin = all.find("{\"");
  ASSERT_NE(begin, std::string::npos) << all;
  const auto said = parse_json(std::string_view(all).substr(begin, all.find('\n', begin) - begin));
  ASSERT_TRUE(said) << all;
  const Json disk = said->at("disk");
  ASSERT_TRUE(disk.is_object()) << said->dump();
  ASSERT_EQ(run(wanted, run_dir), 0) << text(output());
  const auto near = [&](const char* key, const fs::path& path, double share) {
    const double expected = disk.at(key).get<double>(), found = static_cast<double>(bytes_below(path));
    EXPECT_NEAR(found, expected, share * expected) << key;
  };
  near("checkpoint", run_dir / "checkpoints" / "step_2", 0.02);
  near("export", run_dir / "export" / "model.safetensors", 0.02);
  // Episodes that are under way when the run ends are written, too: as many as a batch each way.
  const auto steps = [&](const char* key) { return 4 * disk.at(key).get<uint64_t>(); };
  EXPECT_LE(bytes_below(run_dir / "trajectories"), steps("trajectories_a_step_at_most"));
  const uint64_t records =
      bytes_below(run_dir / "ledger") + bytes_below(run_dir / "metrics.jsonl") + bytes_below(run_dir / "logs");
  // Logs and the ledger grow with the time that a busy machine takes, too.
  EXPECT_LE(records, 20 * steps("records_a_step"));
  EXPECT_GE(records, steps("records_a_step") / 8);
}

TEST_F(RunDisk, a_plan_that_needs_more_memory_than_a_process_may_have_is_warned_of_with_the_numbers) {
  Arguments dry = command({"rollout.slots=4096", "rollout.max_tokens=1024"}, root() / "dry");
  dry.insert(dry.end(), {"--dry-run", "--json"});
  const auto said = [&](const std::string& limit) {
    std::string line = limit + " exec";
    for (const auto& argument : dry) line += " '" + argument + "'";
    EXPECT_EQ(Process({"/bin/sh", "-c", line}, output()).wait(), 0) << text(output());
    const std::string all = text(output());
    const size_t begin = all.find("{\"");
    if (begin == std::string::npos) return Json::object();
    const auto json = parse_json(std::string_view(all).substr(begin, all.find('\n', begin) - begin));
    return json ? json->value("memory_here", Json::object()) : Json::object();
  };
  const Json here = said("");
  ASSERT_TRUE(here.contains("needed"));
  const auto needed = here.at("needed").get<uint64_t>();
  ASSERT_GT(needed, uint64_t{2} << 30) << "keys and values of 4096 slots";
  EXPECT_GT(here.at("limit").get<uint64_t>(), 0u);
  const Json limited = said("ulimit -v 1900000;");
  EXPECT_EQ(limited.at("needed"), needed);
  EXPECT_NE(limited.at("warning").get<std::string>().find("each may have 1.81 GiB (ulimit -v)"), std::string::npos)
      << limited.dump();
  EXPECT_NE(text(output()).find("lower rollout.slots"), std::string::npos) << text(output());
}

TEST_F(RunDisk, a_run_may_open_more_files_than_its_shell_allows_at_first) {
  const fs::path run_dir = root() / "few files";
  std::string line = "ulimit -Sn 64; exec";
  for (const auto& argument : command({"run.steps=1", "tasks.heldout=0"}, run_dir)) line += " '" + argument + "'";
  ASSERT_EQ(Process({"/bin/sh", "-c", line}, output()).wait(), 0) << text(output());
  EXPECT_EQ(json(run_dir / "summary.json")["outcomes"]["infra_error"], 0);
  EXPECT_EQ(text(output()).find("without a reward"), std::string::npos) << text(output());
}

TEST_F(RunDisk, a_run_ends_before_its_limit_and_goes_on_with_a_larger_one) {
  const fs::path run_dir = root() / "limited";
  const Arguments wanted = {"run.steps=60", "tasks.heldout=0", "tasks.floors=false", "trainer.checkpoint_every=5",
                            "trainer.keep_checkpoints=all"};
  const auto with = [&](const std::string& limit) {
    Arguments all = wanted;
    all.push_back("run.disk_limit=" + limit);
    return all;
  };
  ASSERT_EQ(run(with("30MB"), run_dir), 5) << text(output());
  EXPECT_THAT(text(output()), HasSubstr("of a run.disk_limit of 30 MB"));
  EXPECT_THAT(text(output()), HasSubstr("go on by --resume"));
  EXPECT_THAT(json(run_dir / "failure.json").value("reason", ""), HasSubstr("run.disk_limit"));
  // Steps this fast may write another checkpoint of 5 MB between the look and the end.
  EXPECT_LE(bytes_below(run_dir), 36'000'000U);
  const int step = json(run_dir / "summary.json").value("steps", 0);
  EXPECT_GT(step, 0);
  EXPECT_LT(step, 60);
  EXPECT_TRUE(fs::exists(run_dir / "checkpoints" / ("step_" + std::to_string(step)))) << "it ends with a checkpoint";
  expect_books_to_agree(run_dir);
  // Nothing has changed: it is told before a process is started.
  EXPECT_EQ(run(with("30MB"), run_dir, true), 2) << text(output());
  EXPECT_THAT(text(output()), HasSubstr("run.disk_limit"));
  // What a refused start asked for is not kept.
  EXPECT_EQ(run(with("20MB"), run_dir, true), 2) << text(output());
  EXPECT_EQ(json(run_dir / "config.resolved.json")["run"]["disk_limit"], "30MB");
  ASSERT_EQ(run({"run.steps=60", "tasks.heldout=0", "tasks.floors=false", "trainer.checkpoint_every=5",
                 "trainer.keep_checkpoints=1", "run.disk_limit=1GB"},
                run_dir, true),
            0)
      << text(output());
  EXPECT_EQ(json(run_dir / "summary.json")["steps"], 60);
  expect_books_to_agree(run_dir);
  EXPECT_EQ(run({"run.disk_limit=lots"}, root() / "no-number"), 2);
  EXPECT_THAT(text(output()), HasSubstr("run.disk_limit: \"lots\" is no number of bytes"));
}

}  // namespace
}  // namespace tandem
