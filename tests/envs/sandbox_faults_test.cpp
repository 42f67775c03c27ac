// Sandboxes, makers and spawners that are killed, and what bounds those that stay.
#include <fcntl.h>
#include <fmt/format.h>
#include <sched.h>
#include <signal.h>
#include <sys/mount.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <sys/wait.h>

#include <algorithm>
#include <fstream>
#include <thread>

#include "envs/sandbox/cgroup.h"
#include "envs/sandbox/owner.h"
#include "envs/sandbox/pool.h"
#include "envs/sandbox/process_handle.h"
#include "tests/envs/sandbox_fixture.h"
#include "tests/envs/scratch.h"

namespace tandem::envs {
namespace {

using namespace std::chrono_literals;
using SandboxFaults = EitherSandbox;

pid_t the_spawner() {
  const auto children = children_of(getpid());
  return children.size() == 1 ? children[0] : -1;
}

// A sandbox has its maker's name for a moment after it was cloned, but is in a namespace of its own from the first.
std::vector<pid_t> makers_of(pid_t spawner) {
  const auto namespace_of = [](pid_t process) {
    std::error_code gone;
    return fs::read_symlink(fmt::format("/proc/{}/ns/pid", process), gone);
  };
  auto makers = children_of(spawner);
  std::erase_if(makers, [&](pid_t process) {
    return name_of(process) != "tandem-maker\n" || namespace_of(process) != namespace_of(spawner);
  });
  return makers;
}

FOR_BOTH_KINDS_OF_SANDBOXES(SandboxFaults);

TEST_P(SandboxFaults, a_warm_sandbox_that_was_killed_is_never_given_away) {
  sandbox_.reset();
  const SystemClock clock;
  SandboxPool pool(*backend_, clock, {}, {.least = 3, .most = 3});
  ASSERT_TRUE(within(30s, [&] { return pool.counters().ready == 3 && sandboxes_of(the_spawner()).size() == 3; }));
  const auto killed = sandboxes_of(the_spawner());
  for (const pid_t process : killed) kill(process, SIGKILL);
  ASSERT_TRUE(within(30s, [&] { return std::all_of(killed.begin(), killed.end(), is_gone); }));
  const auto sandbox = pool.create({.call_time_limit_s = 5});
  ASSERT_TRUE(sandbox.has_value()) << sandbox.error().to_string();
  EXPECT_EQ((*sandbox)->call("run_terminal_cmd", {{"command", "echo hi"}})->output, "hi\n");
  EXPECT_EQ(pool.counters().lost, 3u);
  EXPECT_EQ(pool.counters().failed, 0u);
  EXPECT_TRUE(within(30s, [&] { return pool.counters().ready == 3; })) << "others take their place";
}

TEST_P(SandboxFaults, a_spawner_that_was_killed_is_started_again) {
  for (int round = 0; round < 3; ++round) {
    const pid_t spawner = the_spawner();
    ASSERT_GT(spawner, 0);  // a negative number is every process there is
    kill(spawner, SIGKILL);
    make();
    EXPECT_EQ(shell("echo hi"), "hi\n");
  }
  EXPECT_EQ(backend_->spawners_started(), 4u);
}

TEST_P(SandboxFaults, sandboxes_are_made_while_makers_are_killed) {
  std::atomic<bool> stop{false};
  std::thread killer([&, spawner = the_spawner()] {
    while (!stop) {
      for (const pid_t maker : makers_of(spawner)) kill(maker, SIGKILL);
    }
  });
  for (int i = 0; i < 50; ++i) {
    make();
    EXPECT_EQ(shell("echo hi"), "hi\n");
  }
  stop = true;
  killer.join();
  EXPECT_EQ(backend_->spawners_started(), 1u);
}

// A maker has files of the system in its root, which may be replaced while it lives; in mounts of this test's own.
TEST(Makers, files_of_the_system_are_those_of_now) {
  if (geteuid() != 0) GTEST_SKIP() << "mounts need root";
  Scratch scratch;
  const FileDescriptor before(open("/proc/self/ns/mnt", O_RDONLY | O_CLOEXEC));
  ASSERT_EQ(unshare(CLONE_NEWNS), 0);
  ASSERT_EQ(mount(nullptr, "/", nullptr, MS_REC | MS_PRIVATE, nullptr), 0);
  {
    const auto backend = NamespaceBackend::start(IsolatedBy::kNamespaces);
    ASSERT_TRUE(backend.has_value()) << backend.error().to_string();
    const auto shown = [&] {
      const auto sandbox = (*backend)->create({});
      EXPECT_TRUE(sandbox.has_value()) << sandbox.error().to_string();
      return (*sandbox)->call("run_terminal_cmd", {{"command", "cat /etc/ld.so.conf"}})->output;
    };
    EXPECT_EQ(shown(), *read_file("/etc/ld.so.conf"));
    for (const std::string name : {"one", "two"}) {
      scratch.put(name, "# " + name + "\n");
      ASSERT_EQ(mount((scratch.path / name).c_str(), "/etc/ld.so.conf", nullptr, MS_BIND, nullptr), 0);
      EXPECT_EQ(shown(), "# " + name + "\n");
    }
  }
  ASSERT_EQ(setns(before.get(), CLONE_NEWNS), 0);
}

TEST(RestartBudget, allows_so_many_in_any_window_and_no_more) {
  RestartBudget budget;
  ManualClock clock;
  for (size_t i = 0; i < RestartBudget::kMost; ++i) {
    EXPECT_TRUE(budget.take(clock.now()));
    clock.advance(100ms);
  }
  EXPECT_FALSE(budget.take(clock.now()));
  clock.advance(RestartBudget::kWindow - 100ms * RestartBudget::kMost);
  EXPECT_TRUE(budget.take(clock.now()));
  EXPECT_FALSE(budget.take(clock.now()));
}

TEST(RecentUse, counts_what_was_used_for_one_window_at_least_and_two_at_most) {
  ManualClock clock;
  clock.advance(1min);
  RecentUse use(30s);
  use.used(500, clock.now());
  use.used(3, clock.now());
  EXPECT_EQ(use.most(clock.now()), 500u);
  clock.advance(29s);
  use.used(7, clock.now());
  clock.advance(1s);
  EXPECT_EQ(use.most(clock.now()), 500u);
  use.used(2, clock.now());
  clock.advance(30s);
  EXPECT_EQ(use.most(clock.now()), 2u);
  clock.advance(10min);
  EXPECT_EQ(use.most(clock.now()), 0u);
}

// A process that a group is used by, or that stands for its maker: it ends when its end of the socket does.
struct Process {
  Process() {
    int ends[2] = {-1, -1};
    EXPECT_EQ(socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, ends), 0);
    id = fork();
    if (id == 0) {
      dup2(ends[1], 3);
      syscall(SYS_close_range, 4u, ~0u, 0u);
      char byte = 0;
      _exit(read(3, &byte, 1) > 0 ? 1 : 0);
    }
    close(ends[1]);
    socket = FileDescriptor(ends[0]);
    handle = FileDescriptor(static_cast<int>(syscall(SYS_pidfd_open, id, 0)));
  }
  Process(Process&&) = default;
  void end() {
    socket.reset();
    wait();
  }
  void wait() const { waitpid(id, nullptr, 0); }

  pid_t id = -1;
  FileDescriptor socket, handle;
};

// Numbers of processes are soon given to others where many are made.
TEST(CgroupPool, sweeps_a_group_though_its_owners_number_has_another_process_now) {
  if (CgroupPool::available().empty()) GTEST_SKIP() << "no control groups can be made here";
  std::vector<fs::path> left;
  {
    CgroupPool groups;
    const auto* group = groups.take({}, Time(1min));
    ASSERT_NE(group, nullptr);
    const auto owner = this_owner();  // ends with when it began
    const auto before = owner.substr(0, owner.rfind('.')) + ".1";
    for (const fs::path folder : group->folders)
      for (const auto& of : {before, owner}) left.push_back(folder.parent_path() / ("tandem-" + of + "-test"));
  }
  // As bubblewrap can leave one. Spawners of other tests sweep meanwhile, too: an empty group before it is entered.
  const Process lost, living;
  for (size_t i = 0; i < left.size(); ++i) {
    const Process& process = i % 2 == 1 ? living : lost;
    ASSERT_TRUE(within(30s, [&] {
      std::error_code there;
      fs::create_directory(left[i], there);
      return (std::ofstream(left[i] / "cgroup.procs") << process.id << std::flush).good() || has_ended(process.handle);
    }));
  }
  CgroupPool().clear();
  EXPECT_TRUE(within(30s, [&] { return has_ended(lost.handle); }));
  EXPECT_FALSE(has_ended(living.handle));
  kill(living.id, SIGKILL);
  for (const auto* process : {&lost, &living}) process->wait();
  for (size_t i = 0; i < left.size(); ++i) EXPECT_EQ(fs::exists(left[i]), i % 2 == 1) << left[i];
  for (const auto& folder : left) ::rmdir(folder.c_str());
}

TEST(CgroupPool, lets_go_of_what_a_burst_has_left_with_makers_and_folders) {
  if (CgroupPool::available().empty()) GTEST_SKIP() << "no control groups can be made here";
  ManualClock clock;
  clock.advance(1min);
  CgroupPool groups;
  std::vector<std::string> folders;
  std::vector<Process> users, makers;
  for (int i = 0; i < 12; ++i) {
    auto* group = groups.take({}, clock.now());
    ASSERT_NE(group, nullptr);
    folders.push_back(group->folders.front());
    users.emplace_back();
    makers.emplace_back();
    CgroupPool::enter(*group, makers.back().id);
    group->maker = std::move(makers.back().socket);
    CgroupPool::give(*group, users.back().handle.get());
  }
  const auto there = [&] {
    return std::count_if(folders.begin(), folders.end(), [](auto& f) { return fs::exists(f); });
  };
  // The kernel keeps a group that has ended for a moment; each call tries again.
  const auto tidied_to = [&](long count) {
    return within(30s, [&] {
      clock.advance(1s);
      groups.tidy(clock.now());
      return there() == count;
    });
  };
  for (size_t i = 0; i < users.size(); ++i) {
    if (i != 8) users[i].end();
  }
  clock.advance(29s);
  groups.tidy(clock.now());
  EXPECT_EQ(there(), 12) << "a burst may come again";
  clock.advance(2min);
  ASSERT_TRUE(groups.tidy(clock.now()).has_value());
  for (const size_t gone : {5, 6, 7, 9, 10, 11}) makers[gone].wait();
  EXPECT_TRUE(tidied_to(5)) << there() << " are there; four always stay, and one is in use";
  EXPECT_TRUE(groups.tidy(clock.now()).has_value());
  EXPECT_TRUE(fs::exists(folders[8]));
  users[8].end();
  clock.advance(1s);
  groups.tidy(clock.now());
  makers[8].wait();
  EXPECT_TRUE(tidied_to(4)) << there();
  const auto nothing_to_look_after = [&] {
    clock.advance(1s);
    return !groups.tidy(clock.now()).has_value();
  };
  EXPECT_TRUE(within(30s, nothing_to_look_after));
  groups.clear();
  for (const size_t last : {0, 1, 2, 3, 4}) makers[last].wait();
  EXPECT_EQ(there(), 0);
}

}  // namespace
}  // namespace tandem::envs
