// Runs under a real Slurm: a controller and four nodes, all on this machine (scripts/slurm-sim). Part of `scripts/test
// --long`: minutes of waiting for its scheduler. Skipped where its packages are not installed, or we are not root.
#include <gmock/gmock.h>

#include <cstdlib>

#include "tests/cli/run_fixture.h"
#include "tests/repetitions.h"

namespace tandem {
namespace {

using testing::HasSubstr;
using testing::Not;

class SlurmTest : public RunTest {
 protected:
  static void SetUpTestSuite() {
    RunTest::SetUpTestSuite();
    if (!is_long()) return;
    ASSERT_TRUE(make_directories(work()));
    started() = Process({kSim, "up", cluster().string(), "4", std::to_string(::getpid())}, output()).wait(60s);
    ::setenv("SLURM_CONF", (cluster() / "slurm.conf").c_str(), 1);
  }
  static void TearDownTestSuite() {
    if (is_long()) {
      EXPECT_EQ(Process({kSim, "down", cluster().string()}, output()).wait(60s), 0);
    }
    ::unsetenv("SLURM_CONF");
    RunTest::TearDownTestSuite();
  }
  void SetUp() override {
    if (!is_long()) GTEST_SKIP() << "part of scripts/test --long";
    if (started() == 3) GTEST_SKIP() << "no Slurm on this machine: " << said();
    ASSERT_EQ(started(), 0) << said();
  }

  static bool is_long() { return std::getenv("TANDEM_LONG_TESTS") != nullptr; }
  static std::string said() { return text(output()); }
  static fs::path cluster() { return root() / "cluster"; }
  static fs::path work() { return root() / "work"; }  // from which jobs are submitted

  // What a command of Slurm prints, trimmed.
  static std::string ask(const std::string& command) {
    const fs::path answer = root() / "answer";
    EXPECT_EQ(Process({"/usr/bin/env", "-C", work().string(), "sh", "-c", command}, answer).wait(60s), 0)
        << command << ": " << text(answer);
    return std::string(trim(text(answer)));
  }
  static std::string field(const std::string& job, const std::string& name) {
    const std::string shown = " " + ask("scontrol show job -o " + job) + " ";
    const size_t at = shown.find(" " + name + "=");
    if (at == std::string::npos) return "";
    const size_t begin = at + name.size() + 2;
    return shown.substr(begin, shown.find(' ', begin) - begin);
  }
  // Commands of Slurm take time that the run would have: they are asked five times a second.
  template <typename Condition>
  static bool slowly_within(std::chrono::milliseconds limit, Condition condition) {
    return within(limit, [&] {
      const bool holds = condition();
      if (!holds) ::usleep(200'000);
      return holds;
    });
  }
  static bool comes_to(const std::string& job, const std::string& state, std::chrono::milliseconds limit = 120s) {
    return slowly_within(limit, [&] { return field(job, "JobState") == state; });
  }
  static std::string launch(const fs::path& run_dir, const Arguments& more) {
    Arguments arguments = {"/usr/bin/env",
                           "-C",
                           work().string(),
                           TANDEM_BINARY,
                           "launch",
                           TANDEM_SOURCE_DIR "/configs/tiny.yaml",
                           "--on",
                           "slurm",
                           "--json",
                           "--cores",
                           "2",
                           "--memory",
                           "1",
                           "--run-dir",
                           run_dir.string(),
                           "model.path=" + (root() / "model").string(),
                           "trainer.groups_per_step=2",
                           "trainer.group_size=6"};
    arguments.insert(arguments.end(), more.begin(), more.end());
    const fs::path answer = root() / "answer";
    EXPECT_EQ(Process(arguments, answer).wait(60s), 0) << text(answer);
    const Json job = json(answer);
    return job.contains("jobs") ? job["jobs"][0].get<std::string>() : "";
  }
  // Temporary folders with names that begin so.
  static int temporary_folders(const std::string& begin) {
    std::error_code error;
    int count = 0;
    for (const auto& entry : fs::directory_iterator(root() / "tmp", error))
      count += entry.path().filename().string().starts_with(begin);
    return count;
  }
  static int step_of(const fs::path& run_dir) { return json(run_dir / "status.json").value("step", 0); }
  // Slurm holds a job for two minutes that was put back, from when its last processes are gone. Here it starts after
  // two seconds: in the second of its end a node would take it for the job that was ended.
  static bool comes_to_step(const std::string& job, const fs::path& run_dir, int step) {
    return slowly_within(120s, [&] {
      const std::string from = field(job, "EligibleTime");  // or "Unknown"
      if (from.starts_with("2") && from > ask("date -d '30 seconds' +%Y-%m-%dT%H:%M:%S"))
        ask("scontrol update JobId=" + job + " StartTime=now+2 || true");
      const Json status = json(run_dir / "status.json");
      const std::string state = status.value("state", "");
      return (state == "running" || state == "done") && status.value("step", 0) >= step;
    });
  }
  // Whether this attempt has been told to stop: by its step, or, where it had none yet, when its time of grace was
  // over.
  static bool has_notice(const fs::path& run_dir, int attempt) {
    const std::string all = log(run_dir), begin = " attempt " + std::to_string(attempt) + " on ";
    for (const auto line : split_lines(all)) {
      if (line.find(begin) == std::string_view::npos) continue;
      if (line.find("told to end") != std::string_view::npos || line.ends_with(": asked to end")) return true;
    }
    return false;
  }
  // For a test that waited in vain.
  static std::string state_of_cluster(const std::string& job, const fs::path& run_dir) {
    return log(run_dir) +
           ask("scontrol show job " + job + "; sinfo -N; tail -n 30 " + (cluster() / "log" / "slurmctld.log").string());
  }
  static std::string log(const fs::path& run_dir) { return text(run_dir / "job.log"); }

  static constexpr const char* kSim = TANDEM_SOURCE_DIR "/scripts/slurm-sim";

 private:
  static int& started() {
    static int code = -1;
    return code;
  }
};

// Jobs of a higher partition take all nodes, again and again.
TEST_F(SlurmTest, a_run_that_is_preempted_again_and_again_ends_as_one_that_is_not) {
  const int times = repetitions(3, 20);
  const Arguments settings = {"run.steps=" + std::to_string(30 + 10 * times), "tasks.heldout=0",
                              "run.deterministic=true", "run.silence_seconds=120", "trainer.checkpoint_every=4"};
  const fs::path run_dir = root() / "preempted", whole = root() / "whole";
  const std::string job = launch(run_dir, settings);
  ASSERT_NE(job, "");
  int step = 1;
  for (int i = 0; i < times; ++i) {
    SCOPED_TRACE(i);
    ASSERT_TRUE(comes_to_step(job, run_dir, step)) << state_of_cluster(job, run_dir);
    // Slurm takes seconds, in which the run would come to its end: its trainer is held until the notice.
    pid_t trainer = 0;
    ASSERT_TRUE(within(30s, [&] { return (trainer = pid_of(run_dir, "trainer")) > 0; })) << log(run_dir);
    ASSERT_TRUE(signal(run_dir, trainer, SIGSTOP));
    const std::string urgent =
        ask("sbatch --parsable --partition=urgent --nodes=4 --exclusive --output=/dev/null --wrap true");
    ASSERT_TRUE(within(60s, [&] { return has_notice(run_dir, i); })) << state_of_cluster(job, run_dir);
    (void)signal(run_dir, trainer,
                 SIGCONT);  // by Slurm itself, where it signals all processes, and then it may be gone
    ASSERT_TRUE(slowly_within(60s, [&] { return field(job, "Restarts") == std::to_string(i + 1); })) << log(run_dir);
    ASSERT_TRUE(comes_to(job, "PENDING")) << log(run_dir);
    ASSERT_TRUE(comes_to(urgent, "COMPLETED"));
    step = step_of(run_dir) + 1;
  }
  ASSERT_TRUE(comes_to_step(job, run_dir, step)) << log(run_dir);
  ASSERT_TRUE(comes_to(job, "COMPLETED", 300s)) << log(run_dir);
  for (int i = 0; i < times; ++i) {
    EXPECT_THAT(log(run_dir), HasSubstr("attempt " + std::to_string(i) + " on "));
    const std::string before = "preempted-" + job + ".out";
    EXPECT_THAT(text(work() / before), HasSubstr("attempt " + std::to_string(i + 1) + " on ")) << "the log is kept";
  }
  EXPECT_THAT(log(run_dir), HasSubstr("interrupted; back into the queue"));
  EXPECT_THAT(log(run_dir), HasSubstr("ended with exit code 0"));
  expect_nothing_left(run_dir);
  expect_books_to_agree(run_dir);
  expect_nothing_trained_twice(run_dir);

  ASSERT_EQ(run(settings, whole), 0) << said();
  EXPECT_EQ(export_digest(run_dir), export_digest(whole));
}

TEST_F(SlurmTest, a_job_that_is_cancelled_stays_so_and_leaves_nothing_and_the_same_file_goes_on) {
  const fs::path run_dir = root() / "cancelled";
  const std::string job = launch(run_dir, {"run.steps=5000", "tasks.heldout=0"});
  ASSERT_TRUE(comes_to_step(job, run_dir, 2)) << log(run_dir);
  ask("scancel " + job);
  ASSERT_TRUE(comes_to(job, "CANCELLED")) << log(run_dir);
  expect_nothing_left(run_dir);
  EXPECT_THAT(log(run_dir), HasSubstr("and is left to Slurm"));

  const int step = step_of(run_dir);
  const std::string again = ask("sbatch --parsable " + (run_dir / "launch.sbatch").string());
  ASSERT_TRUE(comes_to_step(again, run_dir, step + 2)) << log(run_dir);
  ask("scancel " + again);
  ASSERT_TRUE(comes_to(again, "CANCELLED")) << log(run_dir);
  expect_nothing_left(run_dir);
  expect_books_to_agree(run_dir);
}

TEST_F(SlurmTest, a_run_over_three_nodes_ends_as_one_on_one_machine_though_it_is_put_back) {
  const Arguments what = {"run.steps=60", "tasks.heldout=0", "run.deterministic=true", "rollout.workers=3"};
  ASSERT_EQ(run(what, root() / "one-machine"), 0) << said();
  const fs::path run_dir = root() / "three-nodes";
  Arguments more = what;
  more.insert(more.end(), {"--nodes", "3"});
  const std::string job = launch(run_dir, more);
  ASSERT_NE(job, "");
  ASSERT_TRUE(comes_to_step(job, run_dir, 2)) << state_of_cluster(job, run_dir) << text(run_dir / "hosts.log");
  const Json status = json(run_dir / "status.json");
  EXPECT_EQ(status.value("hosts", Json::array()).size(), 3u) << status;
  ask("scontrol requeue " + job);
  ASSERT_TRUE(comes_to_step(job, run_dir, 3)) << state_of_cluster(job, run_dir) << text(run_dir / "hosts.log");
  ASSERT_TRUE(comes_to(job, "COMPLETED", 240s)) << state_of_cluster(job, run_dir) << text(run_dir / "hosts.log");
  EXPECT_EQ(export_digest(run_dir), export_digest(root() / "one-machine"));
  expect_books_to_agree(run_dir);
  EXPECT_THAT(text(run_dir / "hosts.log"), HasSubstr("lent to run three-nodes"));
  EXPECT_TRUE(within(40s, [&] { return temporary_folders("tandem-host-") == 0; })) << "folders of hosts are left";
}

TEST_F(SlurmTest, an_array_has_a_run_for_each_seed) {
  const fs::path folder = root() / "seeds";
  const std::string job = launch(folder, {"--seeds", "3-4", "run.steps=2", "tasks.heldout=0"});
  ASSERT_TRUE(slowly_within(120s, [&] { return ask("squeue -h -j " + job + " 2>/dev/null || true").empty(); }));
  for (const int seed : {3, 4}) {
    const fs::path run_dir = folder / ("seed-" + std::to_string(seed));
    EXPECT_EQ(json(run_dir / "summary.json").value("steps", 0), 2) << log(run_dir);
    EXPECT_EQ(json(run_dir / "config.resolved.json")["run"]["seed"], seed);
  }
}

TEST_F(SlurmTest, the_exit_code_of_a_failure_is_that_of_the_job) {
  const fs::path run_dir = root() / "failing", file = root() / "failing.sbatch";
  ask(TANDEM_BINARY " launch " TANDEM_SOURCE_DIR
                    "/configs/tiny.yaml --on slurm --cores 1 --program /no/tandem/here --run-dir " +
      run_dir.string() + " --render " + file.string());
  EXPECT_EQ(ask("sbatch --wait " + file.string() + " >/dev/null 2>&1; echo $?"), "127");
  EXPECT_THAT(log(run_dir), HasSubstr("ended with exit code 127"));
}

}  // namespace
}  // namespace tandem
