// What schedulers and job scripts ask of `tandem run`: signals, also several and early ones, and --resume-or-start.
#include <algorithm>

#include "tests/cli/run_fixture.h"

namespace tandem {
namespace {

class RunSignals : public RunTest {
 protected:
  static std::string said() { return text(output()); }
  static Arguments long_run() { return {"run.steps=5000", "tasks.heldout=0", "trainer.checkpoint_every=4"}; }

  // `tandem run` of t.yaml below `folder`, without --run-dir.
  static Arguments unnamed(const fs::path& folder, const std::string& stem, const Arguments& more) {
    const fs::path config = folder / (stem + ".yaml");
    EXPECT_TRUE(write_file(config, text(TANDEM_SOURCE_DIR "/configs/tiny.yaml")));
    Arguments arguments = {TANDEM_BINARY,
                           "run",
                           config.string(),
                           "run.dir=" + (folder / "runs").string(),
                           "model.path=" + (root() / "model").string(),
                           "tasks.heldout=0",
                           "trainer.groups_per_step=2",
                           "trainer.group_size=6"};
    arguments.insert(arguments.end(), more.begin(), more.end());
    return arguments;
  }
  static std::vector<fs::path> runs_in(const fs::path& folder) {
    std::vector<fs::path> found;
    std::error_code error;
    for (const auto& entry : fs::directory_iterator(folder / "runs", error)) found.push_back(entry.path());
    std::sort(found.begin(), found.end());
    return found;
  }
};

TEST_F(RunSignals, sigusr1_and_what_follows_it_end_a_run_with_a_checkpoint) {
  const fs::path run_dir = root() / "told-thrice";
  Process process(command(long_run(), run_dir), output());
  ASSERT_TRUE(reaches_step(process, run_dir, 2)) << said();
  // The trainer is held, so that the checkpoint cannot be there before the last signal.
  const pid_t trainer = pid_of(run_dir, "trainer");
  ASSERT_TRUE(signal(run_dir, trainer, SIGSTOP));
  process.signal(SIGUSR1);
  ASSERT_TRUE(within(60s, [&] { return json(run_dir / "status.json").value("state", "") == "stopping"; }));
  process.signal(SIGTERM);
  process.signal(SIGUSR1);
  process.signal(SIGTERM);
  ASSERT_TRUE(signal(run_dir, trainer, SIGCONT));
  ASSERT_EQ(process.wait(60s), 75) << said();
  expect_nothing_left(run_dir);
  expect_books_to_agree(run_dir);
  const Json summary = json(run_dir / "summary.json");
  EXPECT_GE(summary.value("steps", 0), 2);
  EXPECT_TRUE(fs::exists(run_dir / "checkpoints" / ("step_" + std::to_string(summary.value("steps", 0))))) << said();
}

TEST_F(RunSignals, sigusr1_to_every_process_does_not_kill_roles) {
  const fs::path run_dir = root() / "usr1-to-all";
  Process process(command(long_run(), run_dir), output());
  ASSERT_TRUE(reaches_step(process, run_dir, 2)) << said();
  for (const char* name : {"trainer", "env", "rollout", "coordinator"})
    EXPECT_TRUE(signal(run_dir, pid_of(run_dir, name), SIGUSR1)) << name;
  process.signal(SIGUSR1);
  ASSERT_EQ(process.wait(60s), 75) << said();
  EXPECT_EQ(said().find("was ended by signal"), std::string::npos) << said();
  expect_nothing_left(run_dir);
}

// Whatever it was doing then: reading the config, copying the model, starting roles.
TEST_F(RunSignals, a_signal_at_any_time_of_the_start_ends_with_75_and_the_same_command_goes_on) {
  const fs::path run_dir = root() / "early";
  for (int i = 0; i < 12; ++i) {
    Process process(command({"run.steps=5000", "tasks.heldout=0", "--resume-or-start"}, run_dir), output());
    // From when it has come to `main`, which is when it has the terminal's words to read: the moments differ by what it
    // does.
    ASSERT_TRUE(within(60s, [&] {
      return text("/proc/" + std::to_string(process.pid()) + "/status").find("SigCgt:\t0000000000000000") ==
             std::string::npos;
    }));
    ::usleep(static_cast<useconds_t>(i) * 25'000);
    process.signal(SIGTERM);
    ASSERT_EQ(process.wait(60s), 75) << "after " << i * 25 << " ms: " << said();
  }
  Process process(command({"run.steps=5000", "tasks.heldout=0", "--resume-or-start"}, run_dir), output());
  const int step = step_of(run_dir);
  ASSERT_TRUE(reaches_step(process, run_dir, step + 2)) << said();
  process.signal(SIGTERM);
  ASSERT_EQ(process.wait(60s), 75) << said();
  expect_nothing_left(run_dir);
  expect_books_to_agree(run_dir);
}

TEST_F(RunSignals, resume_or_start_starts_goes_on_and_says_that_it_is_done) {
  const fs::path run_dir = root() / "either";
  const Arguments settings = {"run.steps=2", "tasks.heldout=0", "--resume-or-start"};
  ASSERT_EQ(run(settings, run_dir), 0) << said();
  ASSERT_EQ(run({"run.steps=4", "tasks.heldout=0", "--resume-or-start"}, run_dir), 0) << said();
  EXPECT_EQ(json(run_dir / "summary.json")["steps"], 4);
  ASSERT_EQ(run({"tasks.heldout=0", "--resume-or-start"}, run_dir), 0) << said();
  EXPECT_NE(said().find("is done already"), std::string::npos) << said();
  EXPECT_EQ(run({"--resume-or-start"}, run_dir, true), 2) << "--resume says the opposite";
}

TEST_F(RunSignals, why_a_run_of_a_job_could_not_begin_is_in_failure_json_until_it_begins) {
  const fs::path run_dir = root() / "cause";
  EXPECT_EQ(run({"run.stpes=2", "--resume-or-start"}, run_dir), 2);
  const Json failure = json(run_dir / "failure.json");
  EXPECT_EQ(failure.value("exit", 0), 2) << failure;
  EXPECT_NE(failure.value("reason", "").find("run.steps"), std::string::npos) << failure;
  ASSERT_EQ(run({"run.steps=1", "tasks.heldout=0", "--resume-or-start"}, run_dir), 0) << said();
  EXPECT_FALSE(fs::exists(run_dir / "failure.json"));
}

TEST_F(RunSignals, resume_takes_the_run_that_is_not_done_and_none_whose_name_begins_alike) {
  const fs::path folder = root() / "names";
  ASSERT_TRUE(make_directories(folder));
  // An interrupted run, then one that is done, then one of a config whose name begins alike.
  {
    Process process(unnamed(folder, "t", {"run.steps=5000"}), output());
    ASSERT_TRUE(within(60s, [&] {
      const auto runs = runs_in(folder);
      return runs.size() == 1 && step_of(runs[0]) >= 1;
    })) << said();
    process.signal(SIGTERM);
    ASSERT_EQ(process.wait(60s), 75) << said();
  }
  const fs::path interrupted = runs_in(folder).at(0);
  ASSERT_EQ(Process(unnamed(folder, "t", {"run.steps=1"}), output()).wait(), 0) << said();
  ASSERT_EQ(Process(unnamed(folder, "t-lora", {"run.steps=1"}), output()).wait(), 0) << said();
  ASSERT_EQ(runs_in(folder).size(), 3u);

  Process process(unnamed(folder, "t", {"--resume"}), output());
  const int step = step_of(interrupted);
  ASSERT_TRUE(reaches_step(process, interrupted, step + 1)) << said();
  process.signal(SIGTERM);
  ASSERT_EQ(process.wait(60s), 75) << said();
  EXPECT_NE(said().find("run " + interrupted.string()), std::string::npos) << "it says which: " << said();

  // All that are left are done: a job script begins another, --resume goes on with one where it is made longer.
  fs::remove_all(interrupted);
  ASSERT_EQ(Process(unnamed(folder, "t", {"--resume-or-start", "run.steps=1"}), output()).wait(), 0) << said();
  EXPECT_EQ(runs_in(folder).size(), 3u);
  ASSERT_EQ(Process(unnamed(folder, "t", {"--resume", "run.steps=2"}), output()).wait(), 0)
      << "one that is done can be made longer: " << said();
  for (const fs::path& run : runs_in(folder)) {
    if (!run.filename().string().starts_with("t-lora")) fs::remove_all(run);
  }
  EXPECT_EQ(Process(unnamed(folder, "t", {"--resume"}), output()).wait(), 2);
  EXPECT_NE(said().find("there is no run of t in"), std::string::npos) << said();
}

TEST_F(RunSignals, runs_that_begin_in_one_second_have_folders_of_their_own) {
  const fs::path folder = root() / "second";
  ASSERT_TRUE(make_directories(folder));
  std::vector<std::unique_ptr<Process>> processes;
  for (int seed = 1; seed <= 3; ++seed) {
    const fs::path log = folder / ("log-" + std::to_string(seed));
    processes.push_back(
        std::make_unique<Process>(unnamed(folder, "t", {"run.steps=1", "run.seed=" + std::to_string(seed)}), log));
  }
  for (size_t i = 0; i < processes.size(); ++i)
    EXPECT_EQ(processes[i]->wait(), 0) << text(folder / ("log-" + std::to_string(i + 1)));
  EXPECT_EQ(runs_in(folder).size(), 3u);
}

}  // namespace
}  // namespace tandem
