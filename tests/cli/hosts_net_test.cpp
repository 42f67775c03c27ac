// A run over three machines that are network namespaces, joined by cables that can be pulled. Part of `scripts/test
// --long`; skipped where we are not root or `ip` is not there.
#include <gmock/gmock.h>

#include <cstdlib>

#include "tests/cli/run_fixture.h"

namespace tandem {
namespace {

using testing::HasSubstr;

constexpr const char* kIp = "/usr/sbin/ip";

// Namespaces of this process: a switch, and machines 1 to 3 at 10.77.0.N.
class HostsNet : public RunTest {
 protected:
  void SetUp() override {
    if (std::getenv("TANDEM_LONG_TESTS") == nullptr) GTEST_SKIP() << "part of scripts/test --long";
    if (::getuid() != 0 || !fs::exists(kIp)) GTEST_SKIP() << "network namespaces need root and ip";
    std::string script = "set -e; ip netns add " + name(0) + "; ip -n " + name(0) +
                         " link add bridge0 type bridge; ip -n " + name(0) + " link set bridge0 up; ";
    for (int machine = 1; machine <= 3; ++machine) {
      const std::string ns = name(machine), port = "port" + std::to_string(machine);
      script += "ip netns add " + ns + "; ip -n " + name(0) + " link add " + port + " type veth peer name eth0 netns " +
                ns + "; ip -n " + name(0) + " link set " + port + " master bridge0 up; ip -n " + ns + " addr add " +
                address(machine) + "/24 dev eth0; ip -n " + ns + " link set eth0 up; ip -n " + ns + " link set lo up; ";
    }
    if (sh(script) != 0) GTEST_SKIP() << "no network namespaces here: " << text(root() / "sh.out");
  }
  void TearDown() override {
    for (int machine = 0; machine <= 3; ++machine) sh("ip netns del " + name(machine) + " 2>/dev/null || true");
  }

  static int sh(const std::string& script) {
    return Process({"/bin/sh", "-c", "PATH=$PATH:/usr/sbin; " + script}, root() / "sh.out").wait(60s);
  }
  static std::string name(int machine) { return "tandem" + std::to_string(::getpid()) + "-" + std::to_string(machine); }
  static std::string address(int machine) { return "10.77.0." + std::to_string(machine); }
  static std::string host_at(int machine) { return "tcp://" + address(machine) + ":7070"; }
  static void pull(int machine) { EXPECT_EQ(sh(link(machine) + "down"), 0) << text(root() / "sh.out"); }
  static void plug(int machine) { EXPECT_EQ(sh(link(machine) + "up"), 0) << text(root() / "sh.out"); }
  static std::string link(int machine) { return "ip -n " + name(0) + " link set port" + std::to_string(machine) + " "; }
  static Arguments on(int machine, const Arguments& command) {
    Arguments all = {kIp, "netns", "exec", name(machine)};
    all.insert(all.end(), command.begin(), command.end());
    return all;
  }
  static std::string key() { return (root() / "net.key").string(); }
  // `tandem host` on a machine, and whether it listens.
  static std::unique_ptr<Process> host(int machine) {
    const fs::path log = log_of(machine);
    auto process =
        std::make_unique<Process>(on(machine, {TANDEM_BINARY, "host", "--listen", host_at(machine), "--key", key(),
                                               "--store", (root() / ("store-" + std::to_string(machine))).string()}),
                                  log);
    EXPECT_TRUE(within(20s, [&] { return text(log).find("host at ") != std::string::npos; })) << text(log);
    return process;
  }
  static fs::path log_of(int machine) { return root() / ("host-" + std::to_string(machine) + ".log"); }
  static std::string state_of(const fs::path& run_dir, int machine) {
    const Json status = json(run_dir / "status.json");
    for (const Json& line : status.value("hosts", Json::array())) {
      if (line["address"] == host_at(machine)) return line["state"].get<std::string>();
    }
    return "";
  }
};

TEST_F(HostsNet, a_run_over_three_machines_survives_pulled_cables_with_the_bytes_of_a_run_on_one) {
  const Arguments what = {"run.steps=700", "tasks.heldout=2", "run.deterministic=true", "trainer.ranks=2",
                          "rollout.workers=4"};
  ASSERT_EQ(run(what, root() / "alone"), 0) << text(output());

  std::vector<std::unique_ptr<Process>> hosts;
  for (int machine = 2; machine <= 3; ++machine) hosts.push_back(host(machine));
  Arguments lent = what;
  lent.insert(lent.end(), {"run.hosts=[" + host_at(2) + ", " + host_at(3) + "]", "run.key=" + key()});
  const fs::path run_dir = root() / "over-three";
  Process process(on(1, command(lent, run_dir)), output());
  ASSERT_TRUE(reaches_step(process, run_dir, 2)) << text(output());
  // Each side is cut off once: its host is named, and taken back when the cable is in again.
  for (int machine = 2; machine <= 3; ++machine) {
    pull(machine);
    EXPECT_TRUE(within(20s, [&] { return state_of(run_dir, machine) == "lost"; })) << text(run_dir / "status.json");
    // So long that the host gives the run up, too, and ends what it has of it.
    EXPECT_TRUE(within(40s, [&] { return text(log_of(machine)).find("its lease has ended") != std::string::npos; }))
        << text(log_of(machine));
    plug(machine);
    EXPECT_TRUE(within(30s, [&] { return state_of(run_dir, machine) == "up" || !process.running(); }))
        << text(run_dir / "status.json");
  }
  ASSERT_EQ(process.wait(), 0) << text(output());
  EXPECT_EQ(export_digest(run_dir), export_digest(root() / "alone"));
  expect_books_to_agree(run_dir);
  expect_nothing_trained_twice(run_dir);
  EXPECT_THAT(text(output()), HasSubstr("is lost: it has not answered for"));
  for (auto& each : hosts) {
    each->signal(SIGTERM);
    EXPECT_EQ(each->wait(60s), 0);
  }
}

}  // namespace
}  // namespace tandem
