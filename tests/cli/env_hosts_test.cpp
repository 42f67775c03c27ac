// Runs whose environments are on hosts of their own: real processes, over TCP with a key.
#include <gmock/gmock.h>
#include <sys/stat.h>

#include "tests/cli/run_fixture.h"

namespace tandem {
namespace {

using testing::HasSubstr;

class EnvHosts : public RunTest {
 protected:
  // `tandem role env --listen`, until the end of the test.
  struct Host {
    explicit Host(const std::string& name, const Arguments& more = {})
        : log(root() / (name + ".log")), process(arguments(more), log) {
      (void)within(20s, [&] { return !address().empty() || !process.running(); });
    }
    static Arguments arguments(const Arguments& more) {
      Arguments all = {TANDEM_BINARY, "role", "env", "--listen", "tcp://127.0.0.1:*", "--key", key().string()};
      all.insert(all.end(), more.begin(), more.end());
      return all;
    }
    std::string address() const {
      const auto said = text(log);
      constexpr std::string_view kBefore = "environment host at ";
      const auto at = said.find(kBefore), end = said.find(": ", at);
      if (at == std::string::npos || end == std::string::npos) return "";
      return said.substr(at + kBefore.size(), end - at - kBefore.size());
    }
    fs::path log;
    Process process;
  };
  static fs::path key() { return root() / "hosts.key"; }
  static std::string hosts(const Arguments& addresses) {
    std::string list;
    for (const auto& address : addresses) list += (list.empty() ? "" : ", ") + address;
    return "env.hosts=[" + list + "]";
  }
  // `tandem envs` with these arguments; what it printed.
  static std::string envs(const std::string& arguments, int expected = 0) {
    const auto out = root() / "envs.out";
    const std::string line = std::string("'" TANDEM_BINARY "' envs ") + arguments + " </dev/null";
    EXPECT_EQ(Process({"/bin/sh", "-c", line}, out).wait(60s), expected) << text(out);
    return text(out);
  }
};

TEST_F(EnvHosts, two_hosts_share_the_episodes_of_a_run_and_one_of_them_may_die) {
  Host first("first");
  Host second("second");
  ASSERT_NE(first.address(), "") << text(first.log);
  ASSERT_NE(second.address(), "") << text(second.log);
  struct stat info {};
  ASSERT_EQ(::stat(key().c_str(), &info), 0);
  EXPECT_EQ(info.st_mode & 0777, 0600u);

  const fs::path run_dir = root() / "hosted";
  Process process(command({"run.steps=100", "tasks.heldout=2", hosts({first.address(), second.address()}),
                           "env.key=" + key().string()},
                          run_dir),
                  output());
  ASSERT_TRUE(reaches_step(process, run_dir, 3)) << text(output());
  EXPECT_EQ(pid_of(run_dir, "env"), 0) << "the run has no server of its own";
  for (Host* host : {&first, &second})
    EXPECT_THAT(envs("logs --endpoint " + host->address() + " --key " + key().string()), HasSubstr(" call "));
  // Through the run's directory all its hosts are found.
  const auto top = envs("top " + run_dir.string() + " --once --json");
  EXPECT_EQ(std::count(top.begin(), top.end(), '\n'), 2) << top;

  second.process.signal(SIGKILL);
  const int step = step_of(run_dir);
  ASSERT_TRUE(reaches_step(process, run_dir, step + 3)) << text(output());
  ASSERT_EQ(process.wait(), 0) << text(output());
  expect_books_to_agree(run_dir);
  expect_nothing_trained_twice(run_dir);
  EXPECT_EQ(json(run_dir / "summary.json")["steps"], 100);

  // The run has left nothing of its own there.
  const auto left = envs("ls --json --endpoint " + first.address() + " --key " + key().string());
  EXPECT_THAT(left, testing::Not(HasSubstr("leased"))) << left;
  first.process.signal(SIGTERM);
  EXPECT_EQ(first.process.wait(60s), 0) << text(first.log);
  expect_nothing_left(run_dir);
}

TEST_F(EnvHosts, runs_share_a_host_beside_servers_of_their_own) {
  Host host("shared", {"--episodes", "6", "--episodes-of-a-run", "3"});
  ASSERT_NE(host.address(), "") << text(host.log);
  const auto settings = [&] {
    return Arguments{"run.steps=6", "tasks.heldout=2", hosts({"local", host.address()}), "env.key=" + key().string()};
  };
  Process one(command(settings(), root() / "one"), root() / "one.out");
  Process other(command(settings(), root() / "other"), root() / "other.out");
  EXPECT_EQ(one.wait(), 0) << text(root() / "one.out");
  EXPECT_EQ(other.wait(), 0) << text(root() / "other.out");
  for (const char* name : {"one", "other"}) {
    expect_books_to_agree(root() / name);
    EXPECT_EQ(json(root() / name / "summary.json")["outcomes"]["infra_error"], 0);
  }
  EXPECT_THAT(envs("logs -n 4096 --json --endpoint " + host.address() + " --key " + key().string()),
              HasSubstr("\"call\""));
}

TEST_F(EnvHosts, a_server_joins_a_run_that_is_on_and_leaves_it_without_losing_an_episode) {
  const fs::path run_dir = root() / "growing";
  Process process(command({"run.steps=5000", "tasks.heldout=0"}, run_dir), output());
  ASSERT_TRUE(reaches_step(process, run_dir, 1)) << text(output());
  const auto layout = run::RunLayout::open(run_dir);
  ASSERT_TRUE(layout) << layout.error().to_string();
  const auto joined = "env-1 joined", left = "env-1 leaves";
  Process server({TANDEM_BINARY, "role", "env", "--run-dir", run_dir.string(), "--rank", "1"}, root() / "joining.log");
  ASSERT_TRUE(within(20s, [&] { return logs(run_dir).find(joined) != std::string::npos; })) << logs(run_dir);
  const std::string endpoint = layout->address({wire::Role::kEnv, 1}).text();
  ASSERT_TRUE(within(20s, [&] {
    const auto said = envs("logs -n 4096 " + run_dir.string() + " --endpoint " + endpoint);
    return said.find(" call ") != std::string::npos;
  }));

  const auto servers = [&] {
    const auto top = envs("top " + run_dir.string() + " --once --json");
    return std::count(top.begin(), top.end(), '\n');
  };
  EXPECT_TRUE(within(20s, [&] { return servers() == 2; })) << "operators find it through the run's directory";

  server.signal(SIGTERM);
  EXPECT_EQ(server.wait(30s), 0) << text(root() / "joining.log");
  EXPECT_TRUE(within(20s, [&] { return logs(run_dir).find(left) != std::string::npos; })) << logs(run_dir);
  EXPECT_TRUE(within(20s, [&] { return servers() == 1; }));
  const int step = step_of(run_dir);
  ASSERT_TRUE(reaches_step(process, run_dir, step + 3)) << text(output());
  // A second process of a role would write into the files of the first.
  for (const char* role : {"coordinator", "trainer", "env"}) {
    Process second({TANDEM_BINARY, "role", role, "--run-dir", run_dir.string()}, root() / "second.log");
    EXPECT_EQ(second.wait(30s), 2) << role;
    EXPECT_NE(text(root() / "second.log").find("-0 of this run is on already"), std::string::npos);
  }
  Process staying({TANDEM_BINARY, "role", "env", "--run-dir", run_dir.string(), "--rank", "2"}, root() / "staying.log");
  ASSERT_TRUE(within(20s, [&] { return logs(run_dir).find("env-2 joined") != std::string::npos; })) << logs(run_dir);
  process.signal(SIGINT);
  ASSERT_EQ(process.wait(60s), 75) << text(output());
  EXPECT_EQ(staying.wait(30s), 0) << "it ends with the run: " << text(root() / "staying.log");
  expect_books_to_agree(run_dir);
  EXPECT_EQ(json(run_dir / "summary.json")["outcomes"]["infra_error"], 0);
  expect_nothing_left(run_dir);
}

TEST_F(EnvHosts, a_server_that_joined_and_is_killed_is_lost_at_once_and_its_episodes_go_elsewhere) {
  const fs::path run_dir = root() / "killed";
  Process process(command({"run.steps=5000", "tasks.heldout=0"}, run_dir), output());
  ASSERT_TRUE(reaches_step(process, run_dir, 1)) << text(output());
  const auto layout = run::RunLayout::open(run_dir);
  ASSERT_TRUE(layout) << layout.error().to_string();
  bool was_noticed = false;
  // It may be between two episodes when it is killed.
  for (int rank = 1; rank <= 5 && !was_noticed; ++rank) {
    const std::string name = "env-" + std::to_string(rank);
    Process server({TANDEM_BINARY, "role", "env", "--run-dir", run_dir.string(), "--rank", std::to_string(rank)},
                   root() / "killed.log");
    const std::string endpoint = layout->address({wire::Role::kEnv, rank}).text();
    ASSERT_TRUE(within(30s, [&] {
      const auto said = envs("logs -n 4096 " + run_dir.string() + " --endpoint " + endpoint);
      return said.find(" call ") != std::string::npos;
    })) << text(root() / "killed.log");
    server.signal(SIGKILL);
    server.wait(60s);
    was_noticed = within(15s, [&] { return logs(run_dir).find(name + " is lost") != std::string::npos; });
    const int step = step_of(run_dir);
    ASSERT_TRUE(reaches_step(process, run_dir, step + 3)) << text(output());
  }
  EXPECT_TRUE(was_noticed) << logs(run_dir);
  process.signal(SIGINT);
  ASSERT_EQ(process.wait(60s), 75) << text(output());
  EXPECT_EQ(logs(run_dir).find("did not answer within"), std::string::npos) << "nobody waited for the dead";
  expect_books_to_agree(run_dir);
  expect_nothing_trained_twice(run_dir);
}

TEST_F(EnvHosts, what_cannot_work_is_said_before_anything_is_started) {
  Host host("refusing");
  ASSERT_NE(host.address(), "") << text(host.log);
  const auto refused = [&](const std::string& name, const Arguments& settings, int code) {
    EXPECT_EQ(run(settings, root() / name), code);
    return text(output());
  };
  EXPECT_THAT(refused("none", {"env.hosts=[]"}, 2), HasSubstr("env.hosts: a run needs one at least"));
  EXPECT_THAT(refused("odd", {hosts({"here"})}, 2), HasSubstr("\"here\" is not an address"));
  EXPECT_THAT(refused("twice", {hosts({"local", "local"})}, 2), HasSubstr("named twice"));
  EXPECT_THAT(refused("no-key", {hosts({host.address()})}, 3),
              testing::AllOf(HasSubstr(host.address()), HasSubstr("env.key")));
  EXPECT_THAT(refused("far", {hosts({"tcp://192.0.2.7:7070"})}, 2), HasSubstr("needs a key"));
  EXPECT_THAT(refused("no-file", {hosts({host.address()}), "env.key=" + (root() / "nothing").string()}, 1),
              HasSubstr("nothing"));
}

}  // namespace
}  // namespace tandem
