#include "run/supervisor.h"

#include <gmock/gmock.h>
#include <signal.h>

#include <algorithm>

#include "tests/run/temporary_run.h"

namespace tandem::run {
namespace {

using testing::ElementsAre;

// Starts nothing, and says that processes have ended when the test wants it to.
class ScriptedLauncher final : public Launcher {
 public:
  Result<int64_t> start(const Job& job) override {
    jobs.push_back(job);
    return static_cast<int64_t>(jobs.size());
  }
  std::vector<Ending> poll() override { return std::exchange(endings, {}); }
  void end(int64_t, EndKind) override {}
  void await(int64_t) override {}

  // The epochs that starts of a peer were given, and the number of the last one's process.
  std::vector<std::string> epochs_of(const std::string& role, const std::string& rank) const {
    std::vector<std::string> epochs;
    for (const Job& job : jobs) {
      if (job.arguments[1] == role && argument(job, "--rank") == rank) epochs.push_back(argument(job, "--epoch"));
    }
    return epochs;
  }
  int64_t last_process_of(const std::string& role) const {
    for (size_t i = jobs.size(); i > 0; --i) {
      if (jobs[i - 1].arguments[1] == role) return static_cast<int64_t>(i);
    }
    return -1;
  }

  std::vector<Job> jobs;
  std::vector<Ending> endings;

 private:
  static std::string argument(const Job& job, const std::string& name) {
    const auto found = std::find(job.arguments.begin(), job.arguments.end(), name);
    return found == job.arguments.end() ? "" : *(found + 1);
  }
};

class SupervisorTest : public TemporaryRun {
 protected:
  SupervisorTest() {
    config_.rollout.workers = 2;
    config_.env.hosts = {"local", "tcp://10.0.0.5:7070"};
  }
  void use(const std::function<void(Supervisor&)>& act) {
    const auto layout = RunLayout::establish(dir());
    ASSERT_TRUE(layout) << layout.error().to_string();
    Supervisor supervisor(dir(), config_, *topology_of(config_), *layout, launcher_, clock_, 1);
    const Status started = supervisor.start();
    ASSERT_TRUE(started) << started.to_string();
    act(supervisor);
  }
  RunConfig config_;
  const BackwardClock clock_;
  ScriptedLauncher launcher_;
};

TEST_F(SupervisorTest, starts_what_the_topology_names_and_nothing_that_is_there_already) {
  use([](Supervisor&) {});
  std::vector<std::string> started;
  for (const Job& job : launcher_.jobs) started.push_back(job.log.stem());
  EXPECT_THAT(started, ElementsAre("coordinator-0", "env-0", "trainer-0", "rollout-0", "rollout-1"));
}

TEST_F(SupervisorTest, every_life_of_a_process_has_the_next_epoch_though_the_wall_clock_goes_back) {
  use([&](Supervisor& supervisor) {
    launcher_.endings = {{.process = launcher_.last_process_of("trainer"), .signal = SIGKILL}};
    EXPECT_TRUE(supervisor.turn());
    EXPECT_THAT(launcher_.epochs_of("trainer", "0"), ElementsAre("1", "2"));
    EXPECT_EQ(supervisor.restarts()["trainer"], 1);
    EXPECT_EQ(supervisor.status()["roles"][2]["state"], "ok");
  });
  use([](Supervisor&) {});  // the next attempt
  EXPECT_THAT(launcher_.epochs_of("trainer", "0"), ElementsAre("1", "2", "3"));
  EXPECT_THAT(launcher_.epochs_of("rollout", "1"), ElementsAre("1", "2"));
}

}  // namespace
}  // namespace tandem::run
