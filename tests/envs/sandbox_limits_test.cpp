// GCC 12 sees overlapping and endless copies in sums of strings that are not there (GCC bug 105651).
#pragma GCC diagnostic ignored "-Wrestrict"
#pragma GCC diagnostic ignored "-Wstringop-overflow"

#include <signal.h>

#include <stop_token>
#include <thread>

#include "base/clock.h"
#include "envs/episodes/demonstration.h"
#include "envs/episodes/episode.h"
#include "envs/sandbox/cgroup.h"
#include "envs/sandbox/pool.h"
#include "envs/tasks/workspace/kinds.h"
#include "tests/envs/sandbox_fixture.h"
#include "tests/envs/scratch.h"
#include "tests/repetitions.h"

namespace tandem::envs {
namespace {

using testing::HasSubstr;
using testing::Not;

using SandboxLimits = EitherSandbox;

FOR_BOTH_KINDS_OF_SANDBOXES(SandboxLimits);

TEST_P(SandboxLimits, a_time_limit_ends_everything_the_command_started) {
  spec_.call_time_limit_s = 2;
  make();
  const auto outcome =
      call("run_terminal_cmd", {{"command", "setsid sleep 61 & (setsid nohup sleep 62 &) ; tail -f /dev/null"}});
  EXPECT_EQ(outcome.exit_code, 124);
  EXPECT_THAT(outcome.output, HasSubstr("time limit of 2 s"));
  EXPECT_EQ(shell("cat /proc/*/cmdline | tr '\\0' ' ' | grep -o 'sleep 6[12]' | head -1; true"), "[no output]\n");
}

TEST_P(SandboxLimits, a_daemon_of_a_finished_command_is_gone_and_a_background_command_stays) {
  shell("setsid nohup sleep 71 > /dev/null 2>&1 & disown");
  EXPECT_TRUE(call("run_terminal_cmd", {{"command", "exec sleep 72"}, {"is_background", true}}).ok);
  // The background command may be on its way to being one; the call's time limit ends a wait for what never comes.
  EXPECT_EQ(shell("all() { cat /proc/*/cmdline | tr '\\0' '\\n'; }; until all | grep -q '^72$'; do sleep 0.01; done; "
                  "all | grep -E '^7[12]$'"),
            "72\n");
}

TEST_P(SandboxLimits, a_fork_bomb_is_bounded_and_the_sandbox_lives_on) {
  spec_.processes = 50;
  spec_.call_time_limit_s = 3;
  make();
  shell("f() { f | f & }; f; sleep 1");
  EXPECT_EQ(shell("echo well"), "well\n");
  EXPECT_THAT(python("import os\n"
                     "n = 0\n"
                     "try:\n"
                     "    while True:\n"
                     "        if os.fork() == 0: import time; time.sleep(5); os._exit(0)\n"
                     "        n += 1\n"
                     "except BlockingIOError: print('stopped', n < 50)\n"),
              HasSubstr("stopped True"));
}

TEST_P(SandboxLimits, memory_is_bounded) {
#if defined(TANDEM_SANITIZED)
  GTEST_SKIP() << "memory is not bounded for each process in sanitizer builds";
#endif
  spec_.memory_bytes = 200 << 20;
  make();
  EXPECT_THAT(python("x = bytearray(300 << 20)"), testing::AnyOf(HasSubstr("MemoryError"), HasSubstr("137")));
  if (!CgroupPool::available().empty()) {
    EXPECT_THAT(
        shell("for i in 1 2 3; do python3 -c 'import time; x = bytearray(90 << 20); time.sleep(5); print(\"lived\")' & "
              "done; wait"),
        Not(HasSubstr("lived\nlived\nlived")));
  }
  EXPECT_EQ(shell("echo well"), "well\n");
}

TEST_P(SandboxLimits, files_that_do_not_fit_into_memory_are_an_error_and_never_missing) {
#if defined(TANDEM_SANITIZED)
  GTEST_SKIP() << "memory is not bounded for each process in sanitizer builds";
#endif
  spec_.memory_bytes = 64 << 20;
  make();
  const Status status = sandbox_->put({{"large", std::string(40 << 20, 'x')}});
  EXPECT_EQ(status.code(), Code::kUnavailable) << status.to_string();
  EXPECT_THAT(status.message(), HasSubstr("killed"));
  EXPECT_EQ(shell("echo well"), "well\n");
}

TEST_P(SandboxLimits, disk_and_files_are_bounded) {
  spec_.disk_bytes = 4 << 20;
  spec_.file_bytes = 2 << 20;
  make();
  EXPECT_THAT(shell("head -c 3000000 /dev/zero > big 2>&1; stat -c %s big"), HasSubstr("2097152"));
  EXPECT_THAT(shell("for i in 1 2 3 4; do head -c 1900000 /dev/zero > f$i; done 2>&1"), HasSubstr("No space left"));
  EXPECT_THAT(shell("rm -f *; for i in $(seq 70000); do echo > i$i; done 2>&1 | head -1"), HasSubstr("No space left"));
}

TEST_P(SandboxLimits, endless_output_is_bounded) {
  spec_.call_time_limit_s = 1;
  make();
  const auto outcome = call("run_terminal_cmd", {{"command", "yes"}});
  EXPECT_TRUE(outcome.truncated);
  EXPECT_LT(outcome.output.size(), 21'000u);
}

TEST_P(SandboxLimits, a_bound_folder_is_worked_in_and_nothing_beside_it) {
  Scratch folder;
  folder.put("work/a.txt", "one\n");
  folder.put("beside", "s3cret\n");
  spec_.workspace = folder.path / "work";
  make();
  EXPECT_EQ(shell("cat a.txt; echo two >> a.txt; cat ../beside 2>/dev/null; ls"), "one\na.txt\n");
  EXPECT_TRUE(call("write", {{"file_path", "new/b.txt"}, {"contents", "b\n"}}).ok);
  EXPECT_EQ(folder.get("work/a.txt"), "one\ntwo\n");
  EXPECT_EQ(folder.get("work/new/b.txt"), "b\n");
}

TEST_P(SandboxLimits, calls_of_several_threads_run_at_once_and_get_their_own_answers) {
  std::vector<std::thread> threads;
  for (int i = 0; i < 8; ++i) {
    threads.emplace_back([this, i] {
      const auto name = std::to_string(i);
      const auto all_have_begun = "until [ $(ls | wc -l) = 8 ]; do sleep 0.01; done; ";
      EXPECT_EQ(shell("touch " + name + "; " + all_have_begun + "echo " + name), name + "\n");
    });
  }
  for (auto& thread : threads) thread.join();
}

TEST_P(SandboxLimits, a_cancelled_call_ends_with_all_that_it_started_and_the_shell_goes_on) {
  spec_.call_time_limit_s = 60;
  make();
  shell("cd /tmp; export A=kept");
  std::stop_source stop;
  std::thread caller([&] {
    const Json arguments = {{"command",
                             "cd /; trap '' TERM; setsid sleep 61 & (setsid nohup sleep 62 &); "
                             "touch /workspace/begun; sleep 63"}};
    EXPECT_TRUE(sandbox_->call("run_terminal_cmd", arguments, stop.get_token()));
  });
  EXPECT_TRUE(within(30s, [&] { return shell("test -e /workspace/begun && echo begun") == "begun\n"; }));
  const SystemClock clock;
  const Time start = clock.now();
  stop.request_stop();
  caller.join();
  EXPECT_LT(to_seconds(clock.now() - start), 30);
  EXPECT_EQ(shell("pwd; echo $A; cat /proc/[0-9]*/comm | grep -c sleep"), "/tmp\nkept\n0\n[exit code 1]\n");
}

TEST_P(SandboxLimits, a_call_can_be_cancelled_at_any_moment) {
  spec_.call_time_limit_s = 60;
  make();
  for (useconds_t delay = 0; delay < 20'000; delay += 300) {
    std::stop_source stop;
    std::thread other([&] {
      usleep(delay);
      stop.request_stop();
    });
    const auto outcome = sandbox_->call("run_terminal_cmd", {{"command", "sleep 64"}}, stop.get_token());
    other.join();
    EXPECT_TRUE(outcome || outcome.error().code() == Code::kCancelled) << outcome.error().to_string();
  }
  EXPECT_EQ(shell("cat /proc/[0-9]*/comm | grep -c sleep"), "0\n[exit code 1]\n");
}

TEST_P(SandboxLimits, collecting_ends_what_still_runs_and_brings_only_files) {
  ASSERT_TRUE(sandbox_->put({{"a/b.txt", std::string("x\0y", 3)}}).ok());
  call("run_terminal_cmd", {{"command", "while true; do echo late >> late; done"}, {"is_background", true}});
  shell("mkfifo pipe; ln -s /etc/passwd link; until [ -s late ]; do sleep 0.01; done");
  const auto collected = sandbox_->collect();
  ASSERT_TRUE(collected.has_value()) << collected.error().to_string();
  EXPECT_TRUE(collected->complete);
  EXPECT_EQ(collected->files.at("a/b.txt"), std::string("x\0y", 3));
  EXPECT_EQ(collected->files.at("pipe"), "(not a regular file)");
  EXPECT_EQ(collected->files.at("link"), "(not a regular file)");
  const auto again = sandbox_->collect();
  EXPECT_EQ(again->files.at("late"), collected->files.at("late"));
}

TEST_P(SandboxLimits, a_lost_sandbox_is_an_error_of_the_infrastructure) {
  const auto spawner = children_of(getpid());
  ASSERT_EQ(spawner.size(), 1u);
  for (const pid_t process : sandboxes_of(spawner[0])) kill(process, SIGKILL);
  const auto outcome = sandbox_->call("list_dir", {{"target_directory", "."}});
  ASSERT_FALSE(outcome.has_value());
  EXPECT_EQ(outcome.error().code(), Code::kUnavailable);
  EXPECT_FALSE(sandbox_->collect().has_value());
}

TEST_P(SandboxLimits, many_sandboxes_leave_nothing_behind) {
  sandbox_.reset();
  ASSERT_TRUE(within(30s, [] { return sandboxes_of(children_of(getpid())[0]).empty(); }));
  const size_t descriptors = count_entries("/proc/self/fd");
  const auto mounts = mounts_here();
  for (int i = repetitions(200, 10'000); i > 0; --i) {
    make();
    ASSERT_EQ(shell("sleep 99 & echo hi"), "hi\n");
  }
  sandbox_.reset();
  EXPECT_EQ(count_entries("/proc/self/fd"), descriptors);
  EXPECT_EQ(mounts_here(), mounts);
  EXPECT_TRUE(within(30s, [] { return sandboxes_of(children_of(getpid())[0]).empty(); }));
  const auto spawner = children_of(getpid())[0];
  EXPECT_LT(count_entries(("/proc/" + std::to_string(spawner) + "/fd").c_str()), 20u);
  backend_.reset();
  EXPECT_TRUE(children_of(getpid()).empty());
  EXPECT_THAT(groups_of(spawner), testing::IsEmpty());
}

TEST_P(SandboxLimits, sandboxes_die_with_their_spawner) {
  call("run_terminal_cmd", {{"command", "sleep 98"}, {"is_background", true}});
  const auto spawner = children_of(getpid())[0];
  const auto inits = sandboxes_of(spawner);
  ASSERT_FALSE(inits.empty());
  kill(spawner, SIGKILL);
  EXPECT_TRUE(within(30s, [&] { return is_gone(inits[0]); }));
  EXPECT_FALSE(sandbox_->call("list_dir", {{"target_directory", "."}}).has_value());
}

TEST_P(SandboxLimits, sandboxes_are_made_though_their_makers_were_killed) {
  const auto spawner = children_of(getpid())[0];
  for (int round = 0; round < 3; ++round) {
    for (const pid_t process : children_of(spawner)) {
      if (name_of(process) == "tandem-maker\n") kill(process, SIGKILL);
    }
    make();
    EXPECT_EQ(shell("echo hi"), "hi\n");
  }
}

TEST_P(SandboxLimits, a_pool_keeps_sandboxes_warm_and_serves_many_threads) {
  const SystemClock clock;
  SandboxPool pool(*backend_, clock, {}, {.least = 3, .most = 4});
  EXPECT_TRUE(within(30s, [&] { return pool.counters().ready == 3; }));
  std::vector<std::thread> threads;
  for (int i = 0; i < 4; ++i) {
    threads.emplace_back([&pool] {
      for (int k = 0; k < 5; ++k) {
        auto sandbox = pool.create({.output_limit = 100, .call_time_limit_s = 5});
        ASSERT_TRUE(sandbox.has_value()) << sandbox.error().to_string();
        EXPECT_EQ((*sandbox)->call("run_terminal_cmd", {{"command", "ls -A; echo > mine"}})->output, "[no output]\n");
      }
    });
  }
  for (auto& thread : threads) thread.join();
  EXPECT_TRUE(within(30s, [&] { return pool.counters().ready == 4; })) << "a burst of four";
  const auto counters = pool.counters();
  EXPECT_GE(counters.warm, 3u);
  EXPECT_EQ(counters.warm + counters.fresh, 20u);
  EXPECT_EQ(counters.failed, 0u);
}

TEST_P(SandboxLimits, a_pool_has_classes_of_their_own_for_other_limits_and_only_so_many) {
  const SystemClock clock;
  SandboxPool pool(*backend_, clock, {}, {.least = 0, .most = 2});
  for (int round = 0; round < 2; ++round) {
    for (int processes = 20; processes < 20 + 2 * static_cast<int>(SandboxPool::kMostClasses); ++processes) {
      const SandboxSpec spec{.call_time_limit_s = 5, .processes = processes};
      const auto sandbox = pool.create(spec);
      ASSERT_TRUE(sandbox.has_value()) << sandbox.error().to_string();
      EXPECT_EQ((*sandbox)->call("run_terminal_cmd", {{"command", "ulimit -u"}})->output,
                std::to_string(processes) + "\n");
    }
  }
  EXPECT_LE(pool.counters().ready, SandboxPool::kMostClasses);
  ASSERT_TRUE(pool.create({.processes = 99}).has_value());
  EXPECT_TRUE(within(30s, [&] { return pool.counters().ready > 0; }));
  const auto warm = pool.counters().warm;
  EXPECT_TRUE(within(30s, [&] { return pool.create({.processes = 99}).has_value() && pool.counters().warm > warm; }));
}

TEST_P(SandboxLimits, the_oracle_scores_one_on_every_kind_and_code_that_cheats_does_not) {
  for (const auto kind : task_kinds()) {
    for (auto split : {Split::kTrain, Split::kHeldout}) {
      Random random(1);
      const auto transcript = demonstrate(*make_task({std::string(kind), split, 77}), random, {}, *backend_);
      ASSERT_TRUE(transcript.has_value()) << transcript.error().to_string();
      EXPECT_EQ(transcript->grade.reward, 1) << kind;
    }
  }
  const auto task = *make_task({"bug", Split::kTrain, 3});
  for (const char* cheat : {"import os, sys\nos._exit(0)\n", "import sys\nsys.exit(0)\n", "while True: pass\n",
                            "import os\nos.write(1, b'True\\n' * 5)\nos._exit(0)\n"}) {
    Files files = task.files;
    for (auto& [path, content] : files) {
      if (!path.starts_with("test_")) content = cheat;
    }
    const auto grade = envs::grade(task, files, "", sandbox_runner(*backend_, 1));
    ASSERT_TRUE(grade.has_value()) << grade.error().to_string();
    EXPECT_EQ(grade->reward, 0) << cheat;
  }
}

// How long it takes is measured by `tandem bench envs`.
TEST_P(SandboxLimits, a_hundred_one_after_another_answer) {
  for (int i = 0; i < 100; ++i) {
    make();
    EXPECT_TRUE(call("list_dir", {{"target_directory", "."}}).ok);
  }
}

}  // namespace
}  // namespace tandem::envs
