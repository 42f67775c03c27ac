// Processes that are killed, stopped and interrupted, one at a time and at random, while a run is on.
#include <algorithm>
#include <fstream>
#include <iostream>
#include <map>
#include <set>

#include "base/random.h"
#include "tests/cli/run_fixture.h"

namespace tandem {
namespace {

class RunFailures : public RunTest {
 protected:
  // A run that is disturbed, and interrupted before it ends.
  static Arguments long_run() { return {"run.steps=5000", "tasks.heldout=0", "trainer.checkpoint_every=4"}; }

  // Kills each role `times` times at random moments, none before its former life is over.
  static void kill_at_random(Process& process, const fs::path& run_dir, Random& random, int times,
                             std::map<std::string, int>& kills) {
    const std::vector<std::string> names = {"coordinator", "trainer", "rollout", "env"};
    std::set<pid_t> dead;
    (void)within(120s, [&] {
      if (!process.running()) return true;
      std::vector<std::string> left;
      for (const auto& name : names) {
        if (kills[name] < times) left.push_back(name);
      }
      if (left.empty()) return true;
      if (!random.chance(0.03)) return false;
      const std::string& name = random.pick(left);
      const pid_t pid = pid_of(run_dir, name, name == "rollout" ? static_cast<int>(random.below(2)) : 0);
      if (pid == 0 || !dead.insert(pid).second) return false;
      kills[name] += signal(run_dir, pid, SIGKILL);
      return false;
    });
  }

  // Kills a process of each role once, a moment after a step of the run that is drawn from [1, steps]. Steps and not
  // seconds, for a fast machine ends the run before any number of seconds.
  static void kill_each_role_once(Process& process, const fs::path& run_dir, Random& random, int steps) {
    std::multimap<int, std::string> names_by_step;
    for (const char* name : {"coordinator", "trainer", "rollout", "env"})
      names_by_step.emplace(1 + static_cast<int>(random.below(static_cast<uint64_t>(steps))), name);
    for (const auto& [step, name] : names_by_step) {
      SCOPED_TRACE(name + " in step " + std::to_string(step));
      ASSERT_TRUE(reaches_step(process, run_dir, step)) << text(output());
      ::usleep(static_cast<useconds_t>(random.below(100'000)));
      const int rank = name == "rollout" ? static_cast<int>(random.below(2)) : 0;
      const auto killed = [&, &role = name] { return signal(run_dir, pid_of(run_dir, role, rank), SIGKILL); };
      ASSERT_TRUE(within(60s, killed)) << text(output());
    }
  }

  // What deterministic runs of the same settings learn, to the bit.
  static void expect_the_same_run(const fs::path& run_dir, const fs::path& undisturbed) {
    const auto expected = episodes(undisturbed, true), got = episodes(run_dir, true);
    ASSERT_EQ(got.size(), expected.size());
    int different = 0;
    for (size_t i = 0; i < got.size() && different < 3; ++i) {
      const auto same = [&](const char* key) { return got[i][key] == expected[i][key]; };
      const auto keys = {"task",    "reward", "advantage", "trained_step",
                         "dropped", "tokens", "logprobs",  "token_versions"};
      if (std::all_of(keys.begin(), keys.end(), same)) continue;
      ++different;
      ADD_FAILURE() << "episode " << i << " was\n" << got[i] << "\nand undisturbed\n" << expected[i];
    }
    EXPECT_EQ(export_digest(run_dir), export_digest(undisturbed));
  }
};

// Five runs, in each of which every role dies twice; further ones where a run was over before that.
TEST_F(RunFailures, every_role_may_be_killed_ten_times_at_any_moment) {
  std::map<std::string, int> kills;
  const auto all_dead = [&] {
    return kills.size() == 4 && std::all_of(kills.begin(), kills.end(), [](const auto& k) { return k.second >= 10; });
  };
  for (int round = 1; round <= 30 && !all_dead(); ++round) {
    const uint64_t seed = static_cast<uint64_t>(::getpid()) * 100 + static_cast<uint64_t>(round);
    SCOPED_TRACE("seed " + std::to_string(seed));
    std::cout << "round " << round << ": seed " << seed << std::endl;
    Random random(seed);
    const fs::path run_dir = root() / ("killed-" + std::to_string(round));
    Process process(command({"run.steps=24", "tasks.heldout=2", "trainer.checkpoint_every=3"}, run_dir), output());
    kill_at_random(process, run_dir, random, std::min(10, 2 * round), kills);
    ASSERT_EQ(process.wait(), 0) << text(output());
    expect_books_to_agree(run_dir);
    expect_nothing_trained_twice(run_dir);
    expect_nothing_left(run_dir);
    EXPECT_EQ(json(run_dir / "summary.json")["logprob"]["max_abs_diff"], 0.0);
    EXPECT_EQ(json(run_dir / "summary.json")["steps"], 24);
  }
  for (const auto& [name, count] : kills) EXPECT_EQ(count, 10) << name;
}

// What a deterministic run learns does not show that its processes were killed: not in a reward, not in a weight.
TEST_F(RunFailures, a_deterministic_run_whose_roles_were_killed_ends_with_the_same_rewards_and_weights) {
  const Arguments settings = {"run.steps=60", "tasks.heldout=0", "run.deterministic=true",
                              "trainer.checkpoint_every=3"};
  ASSERT_EQ(run(settings, root() / "undisturbed"), 0) << text(output());
  const fs::path run_dir = root() / "disturbed";
  const auto seed = static_cast<uint64_t>(::getpid());
  SCOPED_TRACE("seed " + std::to_string(seed));
  Random random(seed);
  Process process(command(settings, run_dir), output());
  ASSERT_NO_FATAL_FAILURE(kill_each_role_once(process, run_dir, random, 40));
  ASSERT_EQ(process.wait(), 0) << text(output());
  expect_the_same_run(run_dir, root() / "undisturbed");
}

// A stopped process does not say that it is ill: it says nothing.
TEST_F(RunFailures, a_role_that_is_stopped_is_named_and_replaced) {
  const fs::path run_dir = root() / "stopped";
  Arguments settings = long_run();
  settings.emplace_back("run.silence_seconds=4");
  Process process(command(settings, run_dir), output());
  ASSERT_TRUE(reaches_step(process, run_dir, 1)) << text(output());
  for (const char* name : {"rollout", "env", "trainer", "coordinator"}) {
    SCOPED_TRACE(name);
    pid_t pid = 0;
    ASSERT_TRUE(within(20s, [&] { return (pid = pid_of(run_dir, name)) > 0; })) << text(output());
    ASSERT_TRUE(signal(run_dir, pid, SIGSTOP));
    const std::string words = std::string(name) + "-0 (pid " + std::to_string(pid) + ") has not answered for ";
    ASSERT_TRUE(within(20s, [&] { return text(output()).find(words) != std::string::npos; })) << text(output());
    const std::string said = text(output());
    const std::string line = said.substr(said.find(words), said.find('\n', said.find(words)) - said.find(words));
    EXPECT_NE(line.find(", since "), std::string::npos) << line;
    EXPECT_NE(line.find("; it was "), std::string::npos) << line;
    const int step = step_of(run_dir);
    ASSERT_TRUE(reaches_step(process, run_dir, step + 2)) << text(output());
  }
  process.signal(SIGINT);
  ASSERT_EQ(process.wait(60s), 75) << text(output());
  expect_nothing_left(run_dir);
  expect_books_to_agree(run_dir);
}

TEST_F(RunFailures, a_role_that_is_stopped_before_it_has_introduced_itself_is_replaced_too) {
  const fs::path run_dir = root() / "stopped-early";
  Arguments settings = long_run();
  settings.insert(settings.end(), {"run.silence_seconds=3", "run.start_seconds=15"});
  Process process(command(settings, run_dir), output());
  ASSERT_TRUE(reaches_step(process, run_dir, 1)) << text(output());
  const pid_t first = pid_of(run_dir, "trainer");
  ASSERT_GT(first, 0);
  ASSERT_TRUE(signal(run_dir, first, SIGKILL));
  // Its next life is stopped as soon as it exists, which is before it has loaded anything.
  pid_t second = 0;
  ASSERT_TRUE(within(20s, [&] {
    for (const auto& entry : fs::directory_iterator("/proc/" + std::to_string(process.pid()) + "/task")) {
      for (const auto child : split(trim(text(entry.path() / "children")), ' ')) {
        const std::string line = text("/proc/" + std::string(child) + "/cmdline");
        if (line.find("trainer") != std::string::npos && std::atoi(std::string(child).c_str()) != first)
          second = std::atoi(std::string(child).c_str());
      }
    }
    return second > 0;
  }));
  ASSERT_TRUE(signal(run_dir, second, SIGSTOP));
  const std::string words = "trainer-0 (pid " + std::to_string(second) + ") has not answered for ";
  ASSERT_TRUE(within(40s, [&] { return text(output()).find(words) != std::string::npos; })) << text(output());
  const int step = step_of(run_dir);
  ASSERT_TRUE(reaches_step(process, run_dir, step + 2)) << text(output());
}

// As a service manager stops what it has started: everybody at once.
TEST_F(RunFailures, a_signal_to_all_processes_at_once_is_an_interrupt) {
  const fs::path run_dir = root() / "everybody";
  Process process(command(long_run(), run_dir), output());
  ASSERT_TRUE(reaches_step(process, run_dir, 2)) << text(output());
  for (const char* name : {"trainer", "env", "rollout", "coordinator"})
    EXPECT_TRUE(signal(run_dir, pid_of(run_dir, name), SIGTERM)) << name;
  process.signal(SIGTERM);
  ASSERT_EQ(process.wait(60s), 75) << text(output());
  expect_nothing_left(run_dir);
  expect_books_to_agree(run_dir);
}

TEST_F(RunFailures, a_role_that_is_asked_to_end_by_a_stranger_comes_back) {
  const fs::path run_dir = root() / "asked";
  Process process(command(long_run(), run_dir), output());
  int step = 1;
  for (const char* name : {"trainer", "env", "rollout"}) {
    SCOPED_TRACE(name);
    ASSERT_TRUE(reaches_step(process, run_dir, step)) << text(output());
    const pid_t pid = pid_of(run_dir, name);
    ASSERT_TRUE(signal(run_dir, pid, SIGTERM));
    ASSERT_TRUE(within(30s, [&] { return pid_of(run_dir, name) > 0 && pid_of(run_dir, name) != pid; }));
    step = step_of(run_dir) + 2;
  }
  ASSERT_TRUE(reaches_step(process, run_dir, step)) << text(output());
  process.signal(SIGINT);
  EXPECT_EQ(process.wait(60s), 75) << text(output());
}

TEST_F(RunFailures, a_run_whose_directory_is_moved_ends_with_one_error_and_goes_on_where_it_is_now) {
  const fs::path run_dir = root() / "moving", moved = root() / "moved";
  Process process(command({"run.steps=400", "tasks.heldout=0", "trainer.checkpoint_every=2"}, run_dir), output());
  ASSERT_TRUE(reaches_step(process, run_dir, 5)) << text(output());
  const fs::path sockets = run::RunLayout::open(run_dir)->socket_folder();
  fs::rename(run_dir, moved);
  EXPECT_EQ(process.wait(30s), 1) << text(output());
  const std::string error = run_dir.string() + ": the run directory was moved to " + moved.string();
  EXPECT_NE(text(output()).find(error), std::string::npos) << text(output());
  EXPECT_FALSE(fs::exists(run_dir)) << "nothing was written where it was";
  EXPECT_FALSE(fs::exists(sockets));

  // Steps after the last checkpoint are trained again, and status.json may be behind metrics.jsonl.
  const std::string lines = text(moved / "metrics.jsonl");
  const int step = static_cast<int>(std::count(lines.begin(), lines.end(), '\n'));
  Process again(command({}, moved, true), output());
  ASSERT_TRUE(reaches_step(again, moved, step + 2)) << text(output());
  again.signal(SIGINT);
  ASSERT_EQ(again.wait(60s), 75) << text(output());
  expect_books_to_agree(moved);
  expect_nothing_trained_twice(moved);
  expect_nothing_left(moved);
}

TEST_F(RunFailures, a_coordinator_that_is_asked_to_end_alone_ends_the_run_with_words) {
  const fs::path run_dir = root() / "coordinator-asked";
  Process process(command(long_run(), run_dir), output());
  ASSERT_TRUE(reaches_step(process, run_dir, 2)) << text(output());
  const pid_t pid = pid_of(run_dir, "coordinator");
  ASSERT_TRUE(signal(run_dir, pid, SIGTERM));
  EXPECT_EQ(process.wait(60s), 75) << text(output());
  EXPECT_NE(text(output()).find("coordinator-0 (pid " + std::to_string(pid) + ") was asked to end"), std::string::npos)
      << text(output());
  EXPECT_NE(text(output()).find("--resume"), std::string::npos);
  expect_nothing_left(run_dir);
}

TEST_F(RunFailures, an_interrupt_while_the_trainer_is_away_waits_for_its_checkpoint) {
  const fs::path run_dir = root() / "interrupted-without-trainer";
  Process process(command(long_run(), run_dir), output());
  ASSERT_TRUE(reaches_step(process, run_dir, 2)) << text(output());
  ASSERT_TRUE(signal(run_dir, pid_of(run_dir, "trainer"), SIGKILL));
  process.signal(SIGINT);
  ASSERT_EQ(process.wait(60s), 75) << text(output());
  expect_nothing_left(run_dir);
  EXPECT_NE(logs(run_dir).find("finishing: waiting for a checkpoint"), std::string::npos);
}

// The checkpoint that the first interrupt waits for cannot come: its trainer is stopped, and not given up so soon.
TEST_F(RunFailures, a_second_interrupt_ends_everything_at_once) {
  const fs::path run_dir = root() / "twice";
  Arguments settings = long_run();
  settings.push_back("run.silence_seconds=60");
  Process process(command(settings, run_dir), output());
  ASSERT_TRUE(reaches_step(process, run_dir, 1)) << text(output());
  ASSERT_TRUE(signal(run_dir, pid_of(run_dir, "trainer"), SIGSTOP));
  process.signal(SIGINT);
  ASSERT_TRUE(within(60s, [&] { return json(run_dir / "status.json").value("state", "") == "stopping"; }));
  // As a trainer leaves it that is killed while it saves.
  ASSERT_TRUE(make_directories(run_dir / "checkpoints" / ".step_9.1.tmp" / "part"));
  process.signal(SIGINT);
  EXPECT_EQ(process.wait(30s), 1) << text(output());
  expect_nothing_left(run_dir);
}

// As often as an episode may be tried, and more.
TEST_F(RunFailures, a_deterministic_run_that_was_interrupted_six_times_lost_no_episode) {
  const fs::path run_dir = root() / "many-interrupts";
  Arguments settings;
  for (int i = 0; i < 6; ++i) {
    // Longer each time: a fast machine makes fifty steps before status.json tells of a lease. It is not waited for so
    // long that the run might be done by then.
    const int begun = step_of(run_dir);
    settings = {"run.steps=" + std::to_string(begun + 60), "tasks.heldout=0", "run.deterministic=true"};
    Process process(command(settings, run_dir, i > 0), output());
    const auto leased = [&] {
      const Json status = json(run_dir / "status.json");
      const Json states = status.value("episodes", Json::object()).value("states", Json::object());
      return status.value("pid", 0) == process.pid() && states.value("leased", 0) > 0;
    };
    ASSERT_TRUE(within(60s, [&] { return leased() || step_of(run_dir) >= begun + 20 || !process.running(); }))
        << text(output());
    process.signal(SIGINT);
    ASSERT_EQ(process.wait(60s), 75) << "interrupt " << i << "\n" << text(output());
  }
  ASSERT_EQ(run(settings, run_dir, true), 0) << text(output());
  EXPECT_FALSE(json(run_dir / "summary.json")["episodes"]["dropped"].contains("worker_lost"));
  ASSERT_EQ(run(settings, root() / "no-interrupts"), 0) << text(output());
  expect_the_same_run(run_dir, root() / "no-interrupts");
}

TEST_F(RunFailures, a_killed_supervisor_takes_its_processes_with_it_and_the_next_start_goes_on) {
  const fs::path run_dir = root() / "orphaned";
  // So many that the run is not over when it is killed.
  const Arguments settings = {"run.steps=24", "tasks.heldout=4", "trainer.checkpoint_every=5"};
  {
    Process process(command(settings, run_dir), output());
    ASSERT_TRUE(has_trained(process, run_dir, 1)) << text(output());
    process.signal(SIGKILL);
    EXPECT_EQ(process.wait(), -SIGKILL);
  }
  // Processes and sandboxes go with it; sockets and what was being written are for the next start to sweep.
  const std::vector<fs::path> unfinished = {run_dir / ".status.json.1.tmp", run_dir / "checkpoints" / ".step_9.1.tmp",
                                            run_dir / "export" / ".model.safetensors.1.tmp"};
  for (const fs::path& path : unfinished) ASSERT_TRUE(make_directories(path / "part"));
  const fs::path sockets = run::RunLayout::open(run_dir)->socket_folder();
  EXPECT_TRUE(fs::exists(sockets));
  Json status = json(run_dir / "status.json");
  status.update({{"wall_seconds", 1000.0}, {"restarts", {{"env", 3}}}});
  ASSERT_TRUE(write_file(run_dir / "status.json", dump_json(status)));
  ASSERT_EQ(run(settings, run_dir, true), 0) << text(output());
  const Json summary = json(run_dir / "summary.json");
  EXPECT_GT(summary["wall_seconds"].get<double>(), 1000.0) << "time of attempts before was forgotten";
  EXPECT_GE(summary["restarts"].value("env", 0), 3) << "restarts of attempts before were forgotten";
  EXPECT_NE(text(output()).find("swept: removed " + sockets.string()), std::string::npos) << text(output());
  for (const fs::path& path : unfinished)
    EXPECT_NE(text(output()).find("swept: removed " + path.string()), std::string::npos) << text(output());
  expect_books_to_agree(run_dir);
  expect_nothing_trained_twice(run_dir);
  expect_nothing_left(run_dir);
}

TEST_F(RunFailures, a_role_that_cannot_work_ends_the_run_with_its_words_and_nothing_is_left) {
  const fs::path run_dir = root() / "hopeless";
  {
    Process process(command(long_run(), run_dir), output());
    ASSERT_TRUE(reaches_step(process, run_dir, 1)) << text(output());
    // What lies there is no log any more: the next trainer cannot read it.
    std::ofstream(run_dir / "trajectories" / "episodes.log", std::ios::trunc) << "something else altogether";
    ASSERT_TRUE(signal(run_dir, pid_of(run_dir, "trainer"), SIGKILL));
    ASSERT_EQ(process.wait(60s), 1) << text(output());
  }
  const std::string said = text(output());
  EXPECT_NE(said.find("trainer-0 cannot work with what lies in the run directory"), std::string::npos) << said;
  EXPECT_NE(said.find("episodes.log: is not a record log"), std::string::npos) << said;
  EXPECT_EQ(json(run_dir / "status.json")["state"], "failed");
  EXPECT_NE(json(run_dir / "failure.json").value("reason", "").find("is not a record log"), std::string::npos);
  expect_nothing_left(run_dir);
}

}  // namespace
}  // namespace tandem
