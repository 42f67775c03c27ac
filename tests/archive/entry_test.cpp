#include "archive/entry.h"

#include <fmt/format.h>
#include <unistd.h>

#include "tests/archive/runs.h"
#include "tests/envs/scratch.h"

namespace tandem::archive {
namespace {

TEST(RunEntryTest, a_run_that_is_done_tells_success_steps_time_and_size) {
  RecordedRun run;
  run.play(dashboard::learns);
  run.write("metrics.jsonl",
            "{\"step\": 1, \"success\": 0.25, \"roles\": {\"env-0\": {\"cpu_seconds\": 1.5}}}\n"
            "{\"step\": 2, \"success\": 0.5, \"roles\": {\"env-0\": {\"cpu_seconds\": 2.0}}, \"trainer\": "
            "{\"cpu_seconds\": 3.0}}\n");
  run.end("done", 1234);
  const RunEntry entry = read_entry(run.dir());
  EXPECT_EQ(entry.problem, "");
  EXPECT_EQ(to_string(entry.state), "done");
  EXPECT_EQ(entry.model, "models/tiny");
  EXPECT_EQ(entry.step, 2u);
  EXPECT_EQ(entry.steps, 2u);
  ASSERT_TRUE(entry.heldout);
  EXPECT_DOUBLE_EQ(entry.heldout->value, 0.75);
  EXPECT_LE(entry.heldout->low, 0.75);
  EXPECT_EQ(entry.training_success, 0.5);
  EXPECT_EQ(entry.core_seconds, 5.0);
  EXPECT_EQ(entry.gpu_seconds, 0.0);
  EXPECT_EQ(entry.wall_seconds, 60.0);
  EXPECT_EQ(entry.ended, 1234.0);
  EXPECT_GT(entry.bytes, fs::file_size(run.dir() / "ledger" / "events.log"));
  const Json json = to_json(entry, 1300);
  EXPECT_EQ(json["age_seconds"], 66.0);
  EXPECT_EQ(json["problem"], Json());
}

TEST(RunEntryTest, a_run_that_holds_a_gpu_costs_its_wall_time_for_each) {
  const RecordedRun one([](run::RunConfig& config) { config.device = "cuda:0"; });
  const RecordedRun two([](run::RunConfig& config) {
    config.device = "cuda:0";
    config.rollout.devices = {"cuda:1", "cuda:1"};
  });
  one.end("done"), two.end("done");
  EXPECT_EQ(read_entry(one.dir()).gpu_seconds, 60.0);
  EXPECT_EQ(read_entry(two.dir()).gpu_seconds, 120.0);
}

TEST(RunEntryTest, how_a_run_ended_is_told_apart) {
  RecordedRun run;
  EXPECT_EQ(read_entry(run.dir()).state, State::kEmpty);
  run.play(dashboard::learns);
  EXPECT_EQ(read_entry(run.dir()).state, State::kKilled) << "no word of its supervisor";
  run.end("stopping");
  EXPECT_EQ(read_entry(run.dir()).state, State::kInterrupted);
  run.write("status.json", dump_json(Json{{"state", "stopping"}, {"end", "interrupted"}}));
  EXPECT_EQ(read_entry(run.dir()).state, State::kInterrupted);
  run.end("done");
  EXPECT_EQ(read_entry(run.dir()).state, State::kDone);
  for (const auto& [phase, state] : {std::pair("train", State::kInterrupted), std::pair("done", State::kDone)}) {
    run.write("status.json", dump_json(Json{{"state", "done"}, {"phase", phase}, {"time", 1000}}));
    EXPECT_EQ(read_entry(run.dir()).state, state) << "what goes on by --resume is not done";
  }
  run.end("failed");
  EXPECT_EQ(read_entry(run.dir()).state, State::kFailed);
  run.write("status.json", dump_json(Json{{"state", "running"}, {"pid", ::getpid()}}));
  EXPECT_EQ(read_entry(run.dir()).state, State::kOn);
}

TEST(RunEntryTest, what_cannot_be_read_is_said_and_the_rest_is_there) {
  RecordedRun run;
  run.play(dashboard::learns);
  run.end("done");
  run.write("metrics.jsonl", "{\"step\": 1}\nnonsense\n{\"step\": 2}\n");
  const RunEntry entry = read_entry(run.dir());
  EXPECT_NE(entry.problem.find("metrics.jsonl"), std::string::npos) << entry.problem;
  EXPECT_EQ(entry.state, State::kDone);
  EXPECT_GT(entry.bytes, 0u);
}

TEST(RunEntryTest, a_run_with_a_huge_ledger_and_huge_metrics_is_told_by_their_ends) {
  RecordedRun run;
  run.play(dashboard::learns);
  run.end("failed");
  // No log: who read it would say that it is damaged.
  run.put("ledger/events.log", "");
  fs::resize_file(run.dir() / "ledger" / "events.log", 65 << 20);
  std::string metrics;
  for (int step = 1; step <= 9000; ++step)
    metrics += fmt::format("{{\"step\": {}, \"success\": 0.25, \"x\": \"{}\"}}\n", step, std::string(500, 'x'));
  run.write("metrics.jsonl", metrics + R"({"step": 9001, "success": 0.5})" + "\n{\"step\": 9002, \"succ");
  const RunEntry entry = read_entry(run.dir());
  EXPECT_EQ(entry.problem, "");
  EXPECT_EQ(entry.step, 9001u);
  EXPECT_EQ(entry.training_success, 0.5);
  EXPECT_EQ(entry.wall_seconds, 60.0);
  EXPECT_FALSE(entry.heldout);
}

// Whatever bytes a file of a run has, the list goes on with the next run.
TEST(RunEntryTest, files_with_other_types_than_were_written_end_no_list) {
  RecordedRun run;
  run.play(dashboard::learns);
  run.end("done");
  for (const char* name : {"status.json", "summary.json", "supervisor.json", "metrics.jsonl", "failures.json",
                           "floors.json", "starts.log", "config.resolved.json"}) {
    const auto before = read_file(run.dir() / name);
    for (const char* text :
         {"", "[]", R"({"state": 5, "steps": "x", "heldout": {"after": 3}, "cost": [], "time": {}, "step": []})",
          "\xff\xfe", "{\"state\""}) {
      run.write(name, text);
      const RunEntry entry = read_entry(run.dir());
      EXPECT_NO_THROW((void)dump_json(to_json(entry, 2000))) << name << " " << text;
      EXPECT_GT(entry.bytes, 0u);
    }
    if (before)
      run.write(name, *before);
    else
      fs::remove(run.dir() / name);
  }
}

TEST(FindRunsTest, runs_are_found_below_a_folder_and_not_within_runs_or_behind_links) {
  envs::Scratch scratch;
  scratch.put("b/config.resolved.json", "{}");
  scratch.put("b/model/config.resolved.json", "{}");
  scratch.put("group/a/config.resolved.json", "{}");
  scratch.put("group/.a.pruned.tmp/config.resolved.json", "{}");
  scratch.put("other/notes.txt", "");
  fs::create_directory_symlink(scratch.path / "b", scratch.path / "c");
  const auto runs = find_runs(scratch.path);
  ASSERT_TRUE(runs) << runs.error().to_string();
  EXPECT_EQ(*runs, (std::vector<fs::path>{scratch.path / "b", scratch.path / "group" / "a"}));
  EXPECT_EQ(*find_runs(scratch.path / "b"), std::vector<fs::path>{scratch.path / "b"});
  EXPECT_EQ(find_runs(scratch.path / "nowhere").error().code(), Code::kInvalid);
}

}  // namespace
}  // namespace tandem::archive
