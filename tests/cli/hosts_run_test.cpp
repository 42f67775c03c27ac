// Runs on machines that are lent to them: real `tandem host` processes on loopback, over TCP with keys.
#include <gmock/gmock.h>
#include <sys/stat.h>

#include "tests/cli/run_fixture.h"
#include "wire/secret.h"

namespace tandem {
namespace {

using testing::HasSubstr;

class HostsRun : public RunTest {
 protected:
  // `tandem host`, until the end of the test, with a store of its own.
  struct Host {
    explicit Host(const std::string& name, const std::string& listen = "tcp://127.0.0.1:*",
                  const std::string& store_of = "")
        : log(root() / ("host-" + name + ".log")),
          store(root() / ("store-" + (store_of.empty() ? name : store_of))),
          process({TANDEM_BINARY, "host", "--listen", listen, "--key", key().string(), "--store", store.string()},
                  log) {
      (void)within(20s, [&] { return !address().empty() || !process.running(); });
    }
    std::string address() const {
      const auto said = text(log);
      constexpr std::string_view kBefore = "host at ";
      const auto at = said.find(kBefore), end = said.find(": ", at);
      if (at == std::string::npos || end == std::string::npos) return "";
      return said.substr(at + kBefore.size(), end - at - kBefore.size());
    }
    bool has_homes() const {
      std::error_code error;
      return fs::directory_iterator(store / "homes", error) != fs::directory_iterator();
    }
    fs::path log, store;
    Process process;
  };
  static fs::path key() { return root() / "hosts.key"; }
  static std::string hosts(const Arguments& addresses) {
    std::string list;
    for (const auto& address : addresses) list += (list.empty() ? "" : ", ") + address;
    return "run.hosts=[" + list + "]";
  }
  static std::string with_key() { return "run.key=" + key().string(); }
  // What status.json says of a host.
  static std::string state_of(const fs::path& run_dir, const Host& host) {
    const Json status = json(run_dir / "status.json");
    for (const Json& line : status.value("hosts", Json::array())) {
      if (line["address"] == host.address()) return line["state"].get<std::string>();
    }
    return "";
  }
  static std::string host_of(const fs::path& run_dir, const std::string& name, int rank) {
    const Json status = json(run_dir / "status.json");
    for (const Json& role : status.value("roles", Json::array())) {
      if (role["name"] == name && role["rank"] == rank) return role["host"].get<std::string>();
    }
    return "";
  }
  static std::string name_of(const Host& host) { return host.address().substr(6); }
};

TEST_F(HostsRun, a_run_on_two_hosts_exports_the_bytes_of_a_run_on_one_machine) {
  const Arguments what = {"run.steps=4", "tasks.heldout=2", "run.deterministic=true"};
  ASSERT_EQ(run(what, root() / "alone"), 0) << text(output());

  Host first("first");
  Host second("second");
  ASSERT_NE(first.address(), "") << text(first.log);
  ASSERT_NE(second.address(), "") << text(second.log);
  struct stat info {};
  ASSERT_EQ(::stat(key().c_str(), &info), 0);
  EXPECT_EQ(info.st_mode & 0777, 0600u);

  Arguments lent = what;
  lent.insert(lent.end(), {hosts({first.address(), second.address()}), with_key()});
  for (const char* name : {"lent", "again"}) {
    ASSERT_EQ(run(lent, root() / name), 0) << text(output()) << logs(root() / name);
    EXPECT_EQ(export_digest(root() / name), export_digest(root() / "alone"));
    EXPECT_EQ(text(output()).find("sending") != std::string::npos, name == std::string("lent"))
        << "what is kept is not sent again: " << text(output());
    expect_books_to_agree(root() / name);
    expect_nothing_left(root() / name);
    for (Host* host : {&first, &second}) EXPECT_FALSE(host->has_homes());
  }
  EXPECT_THAT(logs(root() / "lent"), HasSubstr("rollout-1")) << "logs come back";
  for (Host* host : {&first, &second}) {
    host->process.signal(SIGTERM);
    EXPECT_EQ(host->process.wait(60s), 0) << text(host->log);
    EXPECT_THAT(text(host->log), HasSubstr("started rollout-"));
    EXPECT_THAT(text(host->log), HasSubstr("started env-"));
    EXPECT_EQ(text(host->log).find("started trainer"), std::string::npos);
  }
  const std::string secret = text(key());
  EXPECT_EQ((logs(root() / "lent") + text(first.log) + text(output())).find(secret.substr(13, 20)), std::string::npos);
}

TEST_F(HostsRun, a_host_that_is_killed_is_named_and_its_roles_go_elsewhere) {
  Host first("kept");
  Host second("killed");
  const fs::path run_dir = root() / "killed";
  Process process(
      command({"run.steps=5000", "tasks.heldout=0", hosts({first.address(), second.address()}), with_key()}, run_dir),
      output());
  ASSERT_TRUE(reaches_step(process, run_dir, 2)) << text(output());
  EXPECT_EQ(host_of(run_dir, "rollout", 1), name_of(second));
  second.process.signal(SIGKILL);
  EXPECT_TRUE(within(20s, [&] { return state_of(run_dir, second) == "lost"; })) << text(run_dir / "status.json");
  EXPECT_TRUE(within(20s, [&] { return host_of(run_dir, "rollout", 1) == name_of(first); }))
      << text(run_dir / "status.json");
  const int step = step_of(run_dir);
  ASSERT_TRUE(reaches_step(process, run_dir, step + 4)) << text(output());
  process.signal(SIGTERM);
  ASSERT_EQ(process.wait(), 75) << text(output());
  EXPECT_THAT(text(output()), HasSubstr("host " + name_of(second) + " is lost"));
  EXPECT_THAT(logs(run_dir), HasSubstr("host " + name_of(second) + " is lost"));
  expect_books_to_agree(run_dir);
  expect_nothing_trained_twice(run_dir);
  expect_nothing_left(run_dir);
  // A host that is started there again removes what the killed one left.
  EXPECT_TRUE(second.has_homes());
  Host third("third", "tcp://127.0.0.1:*", "killed");
  EXPECT_FALSE(third.has_homes());
}

TEST_F(HostsRun, a_host_that_was_stopped_is_lost_and_taken_back_when_it_goes_on) {
  Host first("going");
  Host second("stopped");
  const fs::path run_dir = root() / "stopped";
  Process process(
      command({"run.steps=5000", "tasks.heldout=0", hosts({first.address(), second.address()}), with_key()}, run_dir),
      output());
  ASSERT_TRUE(reaches_step(process, run_dir, 2)) << text(output());
  const pid_t former = pid_of(run_dir, "rollout", 1);
  second.process.signal(SIGSTOP);
  EXPECT_TRUE(within(20s, [&] { return state_of(run_dir, second) == "lost"; })) << text(run_dir / "status.json");
  // Its processes are not stopped, and end at the word of the coordinator.
  ASSERT_TRUE(within(30s, [&] { return host_of(run_dir, "rollout", 1) == name_of(first); }))
      << text(run_dir / "status.json");
  const int step = step_of(run_dir);
  ASSERT_TRUE(reaches_step(process, run_dir, step + 2)) << text(output());
  second.process.signal(SIGCONT);
  EXPECT_TRUE(within(20s, [&] { return state_of(run_dir, second) == "up"; })) << text(run_dir / "status.json");
  EXPECT_TRUE(within(20s, [&] { return !fs::exists(fs::path("/proc") / std::to_string(former)); }));
  // When it has been up for a while it gets its roles back.
  EXPECT_TRUE(within(60s, [&] { return host_of(run_dir, "rollout", 1) == name_of(second); }))
      << text(run_dir / "status.json");
  process.signal(SIGTERM);
  ASSERT_EQ(process.wait(), 75) << text(output());
  EXPECT_THAT(text(output()), HasSubstr("host " + name_of(second) + " is back"));
  EXPECT_TRUE(within(20s, [&] { return !first.has_homes() && !second.has_homes(); }));
  expect_nothing_left(run_dir);
}

TEST_F(HostsRun, without_any_host_a_run_waits_and_goes_on_when_one_is_back) {
  std::string address;
  const fs::path run_dir = root() / "waiting";
  auto host = std::make_unique<Host>("alone");
  address = host->address();
  Process process(command({"run.steps=24", "tasks.heldout=0", hosts({address}), with_key()}, run_dir), output());
  ASSERT_TRUE(has_trained(process, run_dir, 1)) << text(output());
  host.reset();
  ASSERT_TRUE(within(20s, [&] {
    return text(run_dir / "status.json").find("waiting for a host with room") != std::string::npos;
  })) << text(run_dir / "status.json");
  host = std::make_unique<Host>("alone again", address, "alone");
  ASSERT_EQ(host->address(), address) << text(host->log);
  ASSERT_EQ(process.wait(), 0) << text(output());
  expect_books_to_agree(run_dir);
  expect_nothing_trained_twice(run_dir);
}

TEST_F(HostsRun, a_host_that_is_drained_hands_its_roles_over_and_ends) {
  Host first("staying");
  Host second("leaving");
  const fs::path run_dir = root() / "drained";
  Process process(
      command({"run.steps=5000", "tasks.heldout=0", hosts({first.address(), second.address()}), with_key()}, run_dir),
      output());
  ASSERT_TRUE(reaches_step(process, run_dir, 2)) << text(output());
  second.process.signal(SIGTERM);
  EXPECT_EQ(second.process.wait(90s), 0) << text(second.log);
  EXPECT_FALSE(second.has_homes());
  ASSERT_TRUE(within(30s, [&] {
    return host_of(run_dir, "rollout", 1) == name_of(first) && state_of(run_dir, second) == "left";
  })) << text(run_dir / "status.json");
  const int step = step_of(run_dir);
  ASSERT_TRUE(reaches_step(process, run_dir, step + 2)) << text(output());
  process.signal(SIGTERM);
  ASSERT_EQ(process.wait(), 75) << text(output());
  EXPECT_EQ(text(output()).find("is lost"), std::string::npos) << text(output());
  expect_nothing_left(run_dir);
}

TEST_F(HostsRun, a_host_joins_a_run_that_is_on_and_one_is_given_back) {
  Host first("begins");
  const fs::path run_dir = root() / "growing";
  Process process(command({"run.steps=5000", "tasks.heldout=0", hosts({first.address()}), with_key()}, run_dir),
                  output());
  ASSERT_TRUE(reaches_step(process, run_dir, 1)) << text(output());
  Process joining({TANDEM_BINARY, "host", "--join", run_dir.string(), "--key", key().string(), "--store",
                   (root() / "store-joins").string()},
                  root() / "host-joins.log");
  // It brings as many rollouts as the first has, and an environment server.
  ASSERT_TRUE(within(30s,
                     [&] {
                       return pid_of(run_dir, "rollout", 3) > 0 && pid_of(run_dir, "env", 1) > 0 &&
                              logs(run_dir).find("rollout-3 joined") != std::string::npos;
                     }))
      << text(run_dir / "status.json") << text(root() / "host-joins.log");
  const std::string joined = host_of(run_dir, "rollout", 3);
  EXPECT_NE(joined, name_of(first));
  EXPECT_EQ(host_of(run_dir, "env", 1), joined);

  Process list({TANDEM_BINARY, "hosts", run_dir.string()}, root() / "list.out");
  ASSERT_EQ(list.wait(60s), 0) << text(root() / "list.out");
  EXPECT_THAT(text(root() / "list.out"), HasSubstr("rollout-3"));
  Process drain({TANDEM_BINARY, "hosts", run_dir.string(), "--drain", name_of(first)}, root() / "drain.out");
  ASSERT_EQ(drain.wait(60s), 0) << text(root() / "drain.out");
  EXPECT_TRUE(within(60s, [&] {
    return state_of(run_dir, first) == "left" && host_of(run_dir, "rollout", 0) == joined && !first.has_homes();
  })) << text(run_dir / "status.json");
  const int step = step_of(run_dir);
  ASSERT_TRUE(reaches_step(process, run_dir, step + 2)) << text(run_dir / "status.json");
  Process nobody({TANDEM_BINARY, "hosts", run_dir.string(), "--drain", "nobody:1"}, root() / "drain.out");
  EXPECT_EQ(nobody.wait(60s), 1);
  EXPECT_THAT(text(root() / "drain.out"), HasSubstr("the run has no host nobody:1"));
  // What was given back is free for others, and may come again.
  Process again({TANDEM_BINARY, "hosts", run_dir.string(), "--add", first.address()}, root() / "add.out");
  ASSERT_EQ(again.wait(60s), 0) << text(root() / "add.out");
  EXPECT_TRUE(within(20s, [&] { return state_of(run_dir, first) == "up"; })) << text(run_dir / "status.json");
  process.signal(SIGTERM);
  ASSERT_EQ(process.wait(), 75);
  joining.signal(SIGTERM);
  EXPECT_EQ(joining.wait(60s), 0) << text(root() / "host-joins.log");
  expect_books_to_agree(run_dir);
}

TEST_F(HostsRun, a_run_whose_supervisor_was_killed_goes_on_with_its_hosts_at_once) {
  const Arguments what = {"run.steps=24", "tasks.heldout=0", "run.deterministic=true", "trainer.checkpoint_every=1"};
  ASSERT_EQ(run(what, root() / "undisturbed"), 0) << text(output());
  Host host("orphaned");
  const fs::path run_dir = root() / "disturbed";
  Arguments lent = what;
  lent.insert(lent.end(), {hosts({host.address()}), with_key()});
  {
    Process process(command(lent, run_dir), output());
    ASSERT_TRUE(reaches_step(process, run_dir, 1)) << text(output());
    process.signal(SIGKILL);
    process.wait();
  }
  ASSERT_EQ(run(lent, run_dir, true), 0) << text(output());
  EXPECT_EQ(export_digest(run_dir), export_digest(root() / "undisturbed"));
  expect_books_to_agree(run_dir);
  expect_nothing_trained_twice(run_dir);
  // Where the last step was done before the kill, the host is not asked again and lets go by itself.
  EXPECT_TRUE(within(60s, [&] { return !host.has_homes(); }));
  expect_nothing_left(run_dir);
}

TEST_F(HostsRun, strangers_at_the_ports_of_a_host_and_a_run_disturb_nothing) {
  Host host("public");
  const fs::path run_dir = root() / "public";
  Process process(command({"run.steps=5000", "tasks.heldout=0", hosts({host.address()}), with_key()}, run_dir),
                  output());
  ASSERT_TRUE(reaches_step(process, run_dir, 1)) << text(output());
  const fs::path other = root() / "stranger.key";
  ASSERT_TRUE(tandem::wire::Secret::create(other));
  const std::string listener = json(run_dir / "status.json").value("hosts_join_at", "");
  ASSERT_NE(listener, "");
  for (const std::string& address : {host.address(), listener}) {
    Process stranger({TANDEM_BINARY, "hosts", address, "--add", "tcp://127.0.0.1:1", "--key", other.string()},
                     root() / "stranger.out");
    EXPECT_EQ(stranger.wait(30s), 1);
    EXPECT_THAT(text(root() / "stranger.out"), HasSubstr("no run answers at " + address));
    // Bytes of no protocol.
    const std::string port = address.substr(address.rfind(':') + 1);
    Process noise({"/bin/bash", "-c", "head -c 100000 /dev/urandom > /dev/tcp/127.0.0.1/" + port},
                  root() / "noise.out");
    noise.wait(60s);
  }
  EXPECT_EQ(state_of(run_dir, host), "up");
  const int step = step_of(run_dir);
  ASSERT_TRUE(reaches_step(process, run_dir, step + 2)) << text(output());
  process.signal(SIGTERM);
  ASSERT_EQ(process.wait(), 75);
  const Json ended = json(run_dir / "status.json")["restarts"];
  for (const auto& [role, count] : ended.items()) EXPECT_EQ(count, 0) << role;
}

TEST_F(HostsRun, what_does_not_fit_is_said_before_anything_is_started) {
  Host host("strict");
  ASSERT_NE(host.address(), "") << text(host.log);
  const auto refused = [&](const Arguments& settings, int code, const std::string& words) {
    const fs::path run_dir = root() / "refused";
    fs::remove_all(run_dir);
    EXPECT_EQ(run(settings, run_dir), code) << text(output());
    EXPECT_THAT(text(output()), HasSubstr(words));
    EXPECT_EQ(logs(run_dir), "") << "a role was started";
    expect_nothing_left(run_dir);
  };
  const std::string there = hosts({host.address()});
  refused({there}, 2, "hosts are lent to who has their key");
  refused({there, "run.key=" + (root() / "none").string()}, 2, "there is no such file");
  refused({"run.key=" + key().string()}, 2, "run.hosts names none");
  refused({there, with_key(), "env.hosts=[tcp://127.0.0.1:1]"}, 2, "env.hosts beside it is not built yet");
  refused({there, with_key(), "run.topology=[tcp://127.0.0.1:1 rollout=2 env=1]"}, 2, "is not in run.hosts");

  const fs::path other = root() / "other.key";
  ASSERT_TRUE(tandem::wire::Secret::create(other));
  refused({there, "run.key=" + other.string()}, 3, "does not answer to the key in " + other.string());
  EXPECT_EQ(text(host.log).find("lent to"), std::string::npos);
  ASSERT_EQ(::chmod(other.c_str(), 0644), 0);
  refused({there, "run.key=" + other.string()}, 2, "others may read this key");
  refused({hosts({"tcp://127.0.0.1:1"}), with_key()}, 3, "tcp://127.0.0.1:1 cannot be reached");
  refused({hosts({"tcp://no.such.host.invalid:1"}), with_key()}, 3, "no.such.host.invalid has no address");

  // A second run is refused by name, and the first one does not notice.
  const fs::path run_dir = root() / "holding";
  Process holding(command({"run.steps=5000", "tasks.heldout=0", there, with_key()}, run_dir), root() / "holding.out");
  ASSERT_TRUE(reaches_step(holding, run_dir, 1)) << text(root() / "holding.out");
  refused({there, with_key()}, 3, "it is lent to run holding already");
  const int step = step_of(run_dir);
  ASSERT_TRUE(reaches_step(holding, run_dir, step + 1)) << text(root() / "holding.out");
  holding.signal(SIGTERM);
  EXPECT_EQ(holding.wait(), 75);

  const std::string log = text(host.log);
  Process wide({TANDEM_BINARY, "host", "--listen", "tcp://127.0.0.1:*", "--key", other.string()}, output());
  EXPECT_EQ(wide.wait(60s), 2);
  EXPECT_THAT(text(output()), HasSubstr("others may read this key"));
  Process taken({TANDEM_BINARY, "host", "--listen", host.address(), "--key", key().string(), "--store",
                 (root() / "taken.store").string()},
                output());
  EXPECT_EQ(taken.wait(60s), 1);
  EXPECT_THAT(text(output()), HasSubstr("cannot listen on " + host.address()));
}

TEST_F(HostsRun, tasks_of_ones_own_travel_with_the_run) {
  const fs::path tasks = root() / "tasks";
  for (const char* word : {"MATO", "NIRU", "SEPO"}) {
    ASSERT_TRUE(make_directories(tasks / "short"));
    ASSERT_TRUE(write_file(tasks / "short" / (std::string(word) + ".yaml"),
                           "instruction: Write " + std::string(word) +
                               " into BIDU.\nfiles: {start.txt: nothing here}\nturns: 2\nends_on_change: true\n"
                               "check: {files_after: {BIDU: " +
                               word + "}}\nsolution: {files: {BIDU: " + word + "}}\n"));
  }
  Host host("furnished");
  const fs::path run_dir = root() / "furnished";
  const int code = run({"run.steps=2", "tasks.heldout=1", "tasks.heldout_share=0.5", "tasks.path=" + tasks.string(),
                        hosts({host.address()}), with_key()},
                       run_dir);
  ASSERT_EQ(code, 0) << text(output()) << logs(run_dir);
  expect_books_to_agree(run_dir);
  expect_nothing_left(run_dir);
  EXPECT_THAT(text(host.log), HasSubstr("started env-0"));
}

}  // namespace
}  // namespace tandem
