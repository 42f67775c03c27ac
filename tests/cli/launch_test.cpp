// `tandem launch` as a command: on this machine, and what it says where a scheduler is not there.
#include <gmock/gmock.h>

#include "tests/cli/run_fixture.h"

namespace tandem {
namespace {

using testing::HasSubstr;
using testing::Not;

class LaunchTest : public RunTest {
 protected:
  static std::string said() { return text(output()); }
  static Arguments launch(const Arguments& more) {
    Arguments arguments = {TANDEM_BINARY,
                           "launch",
                           TANDEM_SOURCE_DIR "/configs/tiny.yaml",
                           "model.path=" + (root() / "model").string(),
                           "trainer.groups_per_step=2",
                           "trainer.group_size=6",
                           "tasks.heldout=0"};
    arguments.insert(arguments.end(), more.begin(), more.end());
    return arguments;
  }
  static int run_launch(const Arguments& more, const std::vector<std::string>& environment = {}) {
    return Process(launch(more), output(), environment).wait();
  }
  // The `tandem run` of a launcher, by the status that it writes.
  static pid_t supervisor_of(const fs::path& run_dir) { return json(run_dir / "status.json").value("pid", 0); }
};

TEST_F(LaunchTest, on_this_machine_a_run_that_is_interrupted_or_killed_goes_on_until_it_is_done) {
  const fs::path run_dir = root() / "local";
  Process process(
      launch({"--on", "local", "--run-dir", run_dir.string(), "run.steps=60", "trainer.checkpoint_every=4"}), output());
  pid_t before = 0;
  int step = 1;
  for (const int number : {SIGUSR1, SIGTERM, SIGKILL}) {
    ASSERT_TRUE(within(60s, [&] { return supervisor_of(run_dir) != before && step_of(run_dir) >= step; })) << said();
    before = supervisor_of(run_dir);
    step = step_of(run_dir) + 1;
    ASSERT_TRUE(signal(run_dir, before, number));
  }
  ASSERT_EQ(process.wait(), 0) << said();
  EXPECT_EQ(json(run_dir / "summary.json").value("steps", 0), 60);
  expect_books_to_agree(run_dir);
  expect_nothing_trained_twice(run_dir);
  expect_nothing_left(run_dir);
  const std::string log = text(run_dir / "job.log");
  EXPECT_THAT(log, HasSubstr("attempt 0: exit code 75: interrupted; starting it again"));
  EXPECT_THAT(log, HasSubstr("ended by signal 9; starting it again"));
  EXPECT_THAT(log, HasSubstr("attempt 3: exit code 0: done"));
}

TEST_F(LaunchTest, a_signal_to_the_launcher_stops_the_job) {
  const fs::path run_dir = root() / "stopped";
  Process process(launch({"--on", "local", "--run-dir", run_dir.string(), "run.steps=5000"}), output());
  ASSERT_TRUE(reaches_step(process, run_dir, 1)) << said();
  process.signal(SIGTERM);
  ASSERT_EQ(process.wait(60s), 75) << said();
  EXPECT_THAT(text(run_dir / "job.log"), HasSubstr("attempt 0: exit code 75: stopped"));
  expect_nothing_left(run_dir);
}

TEST_F(LaunchTest, restarts_are_bounded) {
  const fs::path run_dir = root() / "bounded";
  Process process(launch({"--on", "local", "--restarts", "0", "--run-dir", run_dir.string(), "run.steps=5000"}),
                  output());
  ASSERT_TRUE(reaches_step(process, run_dir, 1)) << said();
  ASSERT_TRUE(signal(run_dir, supervisor_of(run_dir), SIGTERM));
  ASSERT_EQ(process.wait(60s), 75) << said();
  EXPECT_THAT(text(run_dir / "job.log"), HasSubstr("started again 0 times already"));
}

TEST_F(LaunchTest, seeds_and_sweeps_run_one_after_another_here) {
  const fs::path folder = root() / "sweep";
  ASSERT_EQ(run_launch({"--on", "local", "--run-dir", folder.string(), "--seeds", "1-2", "--sweep",
                        "trainer.learning_rate=1e-4,3e-4", "run.steps=1"}),
            0)
      << said();
  for (const char* name : {"learning_rate-1e-4_seed-1", "learning_rate-1e-4_seed-2", "learning_rate-3e-4_seed-1",
                           "learning_rate-3e-4_seed-2"})
    EXPECT_EQ(json(folder / name / "summary.json").value("exit", -1), 0) << name;
  const Json config = json(folder / "learning_rate-3e-4_seed-2" / "config.resolved.json");
  EXPECT_EQ(config["run"]["seed"], 2);
  EXPECT_EQ(config["trainer"]["learning_rate"], 3e-4);
}

TEST_F(LaunchTest, what_is_wrong_is_told_before_anything_is_submitted_or_made) {
  const fs::path run_dir = root() / "never";
  const auto error = [&](const Arguments& more, int code) {
    Arguments arguments = more;
    arguments.insert(arguments.end(), {"--run-dir", run_dir.string()});
    EXPECT_EQ(run_launch(arguments), code) << said();
    EXPECT_FALSE(fs::exists(run_dir));
    return said();
  };
  EXPECT_THAT(error({"--on", "slrum"}, 2), HasSubstr("did you mean \"slurm\"?"));
  EXPECT_THAT(error({"--on", "local", "--sweep", "trainer.learning_rat=1,2"}, 2), HasSubstr("learning_rate"));
  EXPECT_THAT(error({"--on", "slurm", "--time", "soon"}, 2), HasSubstr("--time \"soon\""));
  EXPECT_THAT(error({"--on", "local", "--image", "x"}, 2), HasSubstr("--image has no meaning with --on local"));
  EXPECT_THAT(error({"--on", "kubernetes"}, 2), HasSubstr("--image"));
  ASSERT_EQ(run_launch({"--on", "kubernetes", "--run-dir", "runs/a", "--render", "-"}), 0) << said();
  EXPECT_THAT(said(), HasSubstr("image: \"tandem:"));
  EXPECT_THAT(error({"--on", "kubernetes", "--image", "x", "--schedule", "* * * * *"}, 2), HasSubstr("--of eval"));
}

TEST_F(LaunchTest, a_scheduler_that_is_not_there_is_code_3_with_what_to_install) {
  const fs::path run_dir = root() / "unfit";
  const std::vector<std::string> environment = {"PATH=" + (root() / "nothing").string()};
  const Arguments in = {"--run-dir", run_dir.string()};
  const auto with = [&](Arguments more) {
    more.insert(more.end(), in.begin(), in.end());
    EXPECT_EQ(run_launch(more, environment), 3) << said();
    return said();
  };
  EXPECT_THAT(with({"--on", "slurm"}), HasSubstr("apt-get install slurm-client"));
  EXPECT_THAT(with({"--on", "ray"}), HasSubstr("pip install 'ray[default]'"));
  EXPECT_FALSE(fs::exists(run_dir));
  Arguments on_kubernetes = {"--on", "kubernetes", "--image", "x", "--run-dir", "runs/a"};
  EXPECT_EQ(run_launch(on_kubernetes, environment), 3) << said();
  EXPECT_THAT(said(), HasSubstr("kubectl"));
}

TEST_F(LaunchTest, render_writes_a_file_and_nothing_else) {
  const fs::path file = root() / "job.sbatch", run_dir = root() / "rendered";
  ASSERT_EQ(run_launch({"--on", "slurm", "--run-dir", run_dir.string(), "--render", file.string(), "--json"}), 0)
      << said();
  EXPECT_EQ(json(output()).value("file", ""), file.string());
  EXPECT_THAT(text(file), HasSubstr("#SBATCH --signal=B:USR1@300\n"));
  EXPECT_FALSE(fs::exists(run_dir));

  ASSERT_EQ(run_launch({"--on", "kubernetes", "--image", "x", "--run-dir", "runs/a", "--render", "-"}), 0) << said();
  EXPECT_THAT(said(), HasSubstr("\"--run-dir\"\n"));
  EXPECT_THAT(said(), HasSubstr("- \"/data/runs/a\"\n"));
}

// A job starts in another environment, perhaps days later.
TEST_F(LaunchTest, what_the_environment_says_of_the_config_is_in_the_job) {
  const std::vector<std::string> environment = {"TANDEM__RUN__STEPS=4", "TANDEM__TASKS__KINDS=[echo, rename]",
                                                "TANDEM__MODEL__NOW=2026-01-31"};
  const Arguments slurm = {"--on", "slurm", "--run-dir", (root() / "a").string(), "--render", "-"};
  ASSERT_EQ(run_launch(slurm, environment), 0) << said();
  EXPECT_THAT(said(), HasSubstr("shared=(run.steps=4 model.now=2026-01-31 'tasks.kinds=[\"echo\",\"rename\"]' "));
  const Arguments kubernetes = {"--on", "kubernetes", "--image", "x", "--render", "-"};
  ASSERT_EQ(run_launch(kubernetes, environment), 0) << said();
  EXPECT_THAT(said(), HasSubstr("\"steps\": 4"));
}

TEST_F(LaunchTest, a_suite_for_a_cluster_has_its_paths_on_the_volume) {
  const fs::path suite = root() / "suite.yaml";
  ASSERT_TRUE(write_file(suite, "model: models/a\ntasks: {path: tasks/b}\n"));
  Arguments command = {TANDEM_BINARY, "launch",     suite.string(), "--of", "eval",     "--schedule", "30 2 * * *",
                       "--on",        "kubernetes", "--image",      "x",    "--render", "-"};
  ASSERT_EQ(Process(command, output()).wait(), 0) << said();
  EXPECT_THAT(said(), HasSubstr("\"model\": \"/data/models/a\""));
  EXPECT_THAT(said(), HasSubstr("\"path\": \"/data/tasks/b\""));
  EXPECT_THAT(said(), HasSubstr("schedule: \"30 2 * * *\""));
  command.push_back("model=../a");
  EXPECT_EQ(Process(command, output()).wait(), 2);
  EXPECT_THAT(said(), HasSubstr("model: ../a leads to a folder that is not on the cluster's volume"));
}

}  // namespace
}  // namespace tandem
