// The batch file: its text, and what its script does beside programs that stand for those of Slurm.
#include "launch/slurm.h"

#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/stat.h>
#include <unistd.h>

#include "envs/tools/process.h"
#include "tests/launch/golden.h"

namespace tandem::launch {
namespace {

using testing::HasSubstr;
using testing::Not;

TEST(SlurmFile, of_one_run_is_that_of_the_golden_file) {
  const auto text = render_slurm(quickstart_job(), {.time = "8:00:00", .partition = "long", .account = "lab"});
  ASSERT_TRUE(text) << text.error().to_string();
  expect_golden("quickstart.sbatch", *text);
}

TEST(SlurmFile, of_a_sweep_is_that_of_the_golden_file) {
  const auto text = render_slurm(sweep_job(), {.at_once = 2, .extra = {"--qos=high", "--exclude=n[1-2]"}});
  ASSERT_TRUE(text) << text.error().to_string();
  expect_golden("sweep.sbatch", *text);
}

TEST(SlurmFile, of_a_run_on_several_nodes_is_that_of_the_golden_file_and_has_no_key) {
  const auto text = render_slurm(quickstart_job(), {.time = "8:00:00", .nodes = 3});
  ASSERT_TRUE(text) << text.error().to_string();
  expect_golden("nodes.sbatch", *text);
  EXPECT_THAT(*text, HasSubstr("#SBATCH --nodes=3\n#SBATCH --ntasks-per-node=1\n"));
  EXPECT_THAT(*text, Not(HasSubstr("tandem-key-1")));
}

TEST(SlurmFile, a_short_job_gets_its_notice_late_enough_to_work_before) {
  EXPECT_THAT(*render_slurm(quickstart_job(), {.time = "10"}), HasSubstr("--signal=B:USR1@150\n"));
  EXPECT_THAT(*render_slurm(quickstart_job(), {.time = "20"}), HasSubstr("--signal=B:USR1@300\n"));
  EXPECT_THAT(*render_slurm(quickstart_job(), {}), HasSubstr("--signal=B:USR1@300\n"));
}

TEST(SlurmFile, what_would_be_another_line_is_refused) {
  const auto code = [](const SlurmOptions& options) {
    const auto text = render_slurm(quickstart_job(), options);
    return text ? Code::kOk : text.error().code();
  };
  EXPECT_EQ(code({.time = "soon"}), Code::kInvalid);
  EXPECT_EQ(code({.partition = "a\n#SBATCH --uid=0"}), Code::kInvalid);
  EXPECT_EQ(code({.account = "a\"b"}), Code::kInvalid);
  EXPECT_EQ(code({.extra = {"qos=high"}}), Code::kInvalid);
  EXPECT_EQ(code({.extra = {"--qos=high\nrm -r x"}}), Code::kInvalid);
}

TEST(SbatchAnswer, is_the_number_of_the_job) {
  EXPECT_EQ(job_of_sbatch("123\n").value_or(""), "123");
  EXPECT_EQ(job_of_sbatch("123;cluster\n").value_or(""), "123");
  EXPECT_EQ(job_of_sbatch("a line of the site\n77\n").value_or(""), "77");
  EXPECT_FALSE(job_of_sbatch(""));
  EXPECT_FALSE(job_of_sbatch("Submitted batch job 4"));
}

// The script, with a program that ends as it is told in place of tandem.
class SlurmScript : public testing::Test {
 protected:
  SlurmScript() {
    std::string name = (fs::temp_directory_path() / "tandem-slurm-script-XXXXXX").string();
    if (::mkdtemp(name.data()) != nullptr) root_ = name;
    fs::create_directory(root_ / "bin");
    program("srun", "exec sleep 60");
    // What Slurm does to a job that it puts back: it ends its script.
    program("scontrol", fmt::format("case $1 in\n  show) echo \"JobId=7 JobState=$STATE Reason=None\" ;;\n"
                                    "  requeue) echo \"requeue $2\" >>{}/asked; kill -TERM $PPID ;;\nesac",
                                    root_.string()));
    job_ = quickstart_job();
    job_.program = (root_ / "bin" / "tandem").string();
    job_.run_dir = root_ / "run";
  }
  ~SlurmScript() override { fs::remove_all(root_); }

  void program(const std::string& name, const std::string& text) const {
    const fs::path path = root_ / "bin" / name;
    ASSERT_TRUE(write_file(path, "#!/bin/bash\n" + text + "\n"));
    ASSERT_EQ(::chmod(path.c_str(), 0755), 0);
  }

  // Its exit code.
  int run(const std::string& state, int restarts = 0, std::vector<std::string> environment = {}) const {
    const fs::path script = root_ / "job.sbatch";
    const auto text = render_slurm(job_, {});
    EXPECT_TRUE(text && write_file(script, *text).ok());
    environment.insert(environment.end(),
                       {"SLURM_JOB_ID=7", "STATE=" + state, fmt::format("SLURM_RESTART_COUNT={}", restarts),
                        fmt::format("PATH={}/bin:/usr/bin:/bin", root_.string())});
    const auto ended = envs::run_process(
        {.argv = {"/bin/bash", script.string()}, .directory = root_, .environment = environment, .time_limit_s = 30});
    EXPECT_TRUE(ended && !ended->timed_out);
    return ended ? ended->exit_code : -1;
  }
  std::string asked() const { return read_file(root_ / "asked").value_or(""); }
  std::string log() const { return read_file(root_ / "run" / "job.log").value_or(""); }

  fs::path root_;
  Job job_;
};

TEST_F(SlurmScript, starts_the_run_with_all_its_words) {
  program("tandem", fmt::format("printf '%s\\n' \"$@\" >{}/words", root_.string()));
  EXPECT_EQ(run("RUNNING"), 0);
  EXPECT_EQ(read_file(root_ / "words").value_or(""),
            fmt::format("run\n{}\n--run-dir\n{}\n--resume-or-start\nrun.steps=20\nmodel.now=it's noon\n"
                        "trainer.threads=8\nrollout.threads=4\n",
                        job_.config, job_.run_dir.string()));
  EXPECT_THAT(log(), HasSubstr("job 7 attempt 0 on "));
  EXPECT_THAT(log(), HasSubstr("ended with exit code 0"));
  EXPECT_EQ(asked(), "");
}

TEST_F(SlurmScript, a_task_of_an_array_has_its_own_values_and_folder) {
  job_.variants = sweep_job().variants;
  program("tandem", fmt::format("printf '%s\\n' \"$@\" >{}/words", root_.string()));
  EXPECT_EQ(run("RUNNING", 0, {"SLURM_ARRAY_TASK_ID=2"}), 0);
  EXPECT_THAT(read_file(root_ / "words").value_or(""), HasSubstr("trainer.learning_rate=3e-5\nrun.seed=1\n"));
  EXPECT_TRUE(fs::exists(root_ / "run" / "learning_rate-3e-5_seed-1" / "job.log"));
}

TEST_F(SlurmScript, puts_an_interrupted_run_back_into_the_queue_while_the_job_is_on) {
  for (const char* ending : {"exit 75", "kill -TERM $$; sleep 60", "kill -USR1 $$; sleep 60"}) {
    fs::remove(root_ / "asked");
    program("tandem", ending);
    EXPECT_EQ(run("RUNNING", 99), 75) << ending;
    EXPECT_EQ(asked(), "requeue 7\n") << ending;
  }
  EXPECT_THAT(log(), HasSubstr("attempt 99"));
  EXPECT_THAT(log(), HasSubstr("interrupted; back into the queue"));
}

TEST_F(SlurmScript, leaves_a_cancelled_job_cancelled) {
  program("tandem", "exit 75");
  EXPECT_EQ(run("COMPLETING"), 75);
  EXPECT_EQ(asked(), "");
  EXPECT_THAT(log(), HasSubstr("the job is COMPLETING and is left to Slurm"));
}

TEST_F(SlurmScript, gives_up_after_as_many_restarts_as_are_allowed) {
  program("tandem", "exit 75");
  EXPECT_EQ(run("RUNNING", 100), 75);
  EXPECT_EQ(asked(), "");
  EXPECT_THAT(log(), HasSubstr("started again 100 times already"));
}

TEST_F(SlurmScript, a_failure_keeps_its_exit_code_and_is_not_tried_again) {
  for (const int code : {1, 2, 3}) {
    program("tandem", fmt::format("exit {}", code));
    EXPECT_EQ(run("RUNNING"), code);
  }
  EXPECT_EQ(asked(), "");
  EXPECT_THAT(log(), HasSubstr("ended with exit code 3"));
}

TEST_F(SlurmScript, a_crash_is_tried_again_three_times) {
  program("tandem", "kill -KILL $$");
  for (int i = 0; i < kMostCrashes; ++i) EXPECT_EQ(run("RUNNING", i), 75);
  EXPECT_EQ(run("RUNNING", kMostCrashes), 137);
  EXPECT_EQ(asked(), "requeue 7\nrequeue 7\nrequeue 7\n");
  EXPECT_THAT(log(), HasSubstr("crashed by signal 9, after 3 crashes before"));
}

TEST_F(SlurmScript, hands_on_every_notice_and_waits_for_the_run) {
  // It notes signals and ends when it has seen two: one of the time's end, one of a preemption, by the step.
  program("srun",
          "while [[ ! -e $ROOT/time_is_up ]]; do sleep 0.05; done; exec bash -c 'kill -USR2 \"$1\"' x \"${@: -1}\"");
  program("tandem",
          "seen=0\n"
          "trap 'seen=$((seen + 1)); : >$ROOT/time_is_up' TERM\n"
          "kill -USR1 $PPID\n"
          "while ((seen < 2)); do sleep 0.05; done\n"
          "exit 75");
  EXPECT_EQ(run("RUNNING", 0, {"ROOT=" + root_.string()}), 75);
  EXPECT_THAT(log(), HasSubstr("the time is nearly up"));
  EXPECT_THAT(log(), HasSubstr("preempted or cancelled"));
  EXPECT_EQ(asked(), "requeue 7\n");
}

}  // namespace
}  // namespace tandem::launch
