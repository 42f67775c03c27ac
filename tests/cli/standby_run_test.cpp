// Runs with a standby: real `tandem host` processes, a first machine that is killed whole or was only away, and the run
// that goes on from the copy.
#include <gmock/gmock.h>

#include "standby/record.h"
#include "tests/cli/run_fixture.h"

namespace tandem {
namespace {

using testing::HasSubstr;

class StandbyRun : public RunTest {
 protected:
  struct Host {
    explicit Host(const std::string& name, const std::string& listen = "tcp://127.0.0.1:*")
        : log(root() / ("standby-host-" + name + ".log")),
          store(root() / ("standby-store-" + name)),
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
    // The copy of the one run that it keeps.
    fs::path copy() const {
      std::error_code error;
      for (const auto& entry : fs::directory_iterator(store / "standby", error)) return entry.path();
      return {};
    }
    fs::path log, store;
    Process process;
  };
  static fs::path key() { return root() / "standby.key"; }
  static Arguments with(Arguments what, const std::vector<const Host*>& hosts, const Host& standby) {
    std::string list;
    for (const Host* host : hosts) list += (list.empty() ? "" : ", ") + host->address();
    what.insert(what.end(),
                {"run.hosts=[" + list + "]", "run.key=" + key().string(), "run.standby=" + standby.address()});
    return what;
  }
  static Arguments taking_over(const fs::path& copy) { return {TANDEM_BINARY, "run", "--take-over", copy.string()}; }
  static void kill_roles(const fs::path& run_dir) {
    for (const char* role : {"coordinator", "trainer"}) {
      if (const pid_t pid = pid_of(run_dir, role); pid > 0) (void)signal(run_dir, pid, SIGKILL);
    }
  }
  static std::string standby_state(const fs::path& run_dir) {
    return json(run_dir / "status.json").value("standby", Json::object()).value("state", "");
  }
};

const Arguments kSteady = {"run.steps=30", "tasks.heldout=2", "run.deterministic=true", "trainer.checkpoint_every=3"};

TEST_F(StandbyRun, the_run_of_a_machine_that_was_killed_goes_on_at_its_standby_to_the_same_bytes) {
  ASSERT_EQ(run(kSteady, root() / "undisturbed"), 0) << text(output());
  auto first = std::make_unique<Host>("lost");
  Host second("kept");
  const fs::path run_dir = root() / "first-side";
  const Arguments lent = with(kSteady, {first.get(), &second}, second);
  {
    Process process(command(lent, run_dir), output());
    ASSERT_TRUE(reaches_step(process, run_dir, 5)) << text(output());
    // The whole machine, at once: its supervisor, the roles that are its children, and the host on it.
    process.signal(SIGKILL);
    kill_roles(run_dir);
    first->process.signal(SIGKILL);
    process.wait();
  }
  EXPECT_THAT(text(output()), HasSubstr("keeps a copy in " + second.copy().string()));
  first.reset();
  const fs::path copy = second.copy();
  ASSERT_FALSE(copy.empty());
  const int trained = step_of(run_dir);

  // Nobody begins another run in it by mistake.
  EXPECT_EQ(run({}, copy, true), 2);
  EXPECT_THAT(text(output()), HasSubstr("is the copy that host " + second.address() + " keeps of run first-side"));

  // What is asked for beside is checked before anything changes.
  for (const auto& [asked, code] : {std::pair{"run.stepz=3", 2}, {"model.path=elsewhere", 2}}) {
    auto wrong = taking_over(copy);
    wrong.push_back(asked);
    Process refused(wrong, root() / "refused.out");
    EXPECT_EQ(refused.wait(), code) << asked << text(root() / "refused.out");
    EXPECT_EQ(json(copy / "standby.json")["taken"], false) << asked << text(root() / "refused.out");
  }

  Process taking(taking_over(copy), root() / "taking.out");
  ASSERT_EQ(taking.wait(), 0) << text(root() / "taking.out") << logs(copy);
  EXPECT_THAT(text(root() / "taking.out"), HasSubstr("cannot be reached: the run goes on without it"));
  EXPECT_THAT(text(root() / "taking.out"), HasSubstr("the run has epoch 2 from now on"));
  EXPECT_EQ(export_digest(copy), export_digest(root() / "undisturbed"));
  expect_books_to_agree(copy);
  expect_nothing_trained_twice(copy);
  EXPECT_GE(step_of(copy), trained);
  EXPECT_THAT(text(copy / "ledger" / "events.log"), HasSubstr(R"("event":"taken_over")"));

  // The first machine is back, and says who has the run.
  const std::string before = text(run_dir / "ledger" / "events.log");
  EXPECT_EQ(run(lent, run_dir, true), 3) << text(output());
  EXPECT_THAT(text(output()), HasSubstr("the run was taken over at"));
  EXPECT_THAT(text(output()), HasSubstr("it has epoch 2 there, and this is epoch 1"));
  EXPECT_THAT(text(run_dir / "ledger" / "events.log"), testing::StartsWith(before));
  EXPECT_EQ(step_of(run_dir), trained);
  // Once more changes nothing.
  Process again(taking_over(copy), root() / "taking.out");
  EXPECT_EQ(again.wait(), 0) << text(root() / "taking.out");
  EXPECT_THAT(text(root() / "taking.out"), HasSubstr("is done already"));
  second.process.signal(SIGTERM);
  EXPECT_EQ(second.process.wait(60s), 0) << text(second.log);
}

TEST_F(StandbyRun, an_old_side_that_was_only_away_ends_by_itself_and_has_trained_nothing_more) {
  const Arguments what = {"run.steps=5000", "tasks.heldout=0", "run.deterministic=true", "trainer.checkpoint_every=3"};
  Host first("here");
  Host second("there");
  const fs::path run_dir = root() / "away";
  Process process(command(with(what, {&first, &second}, second), run_dir), output());
  ASSERT_TRUE(reaches_step(process, run_dir, 4)) << text(output());
  const std::vector<pid_t> stopped = {process.pid(), pid_of(run_dir, "coordinator"), pid_of(run_dir, "trainer")};
  for (const pid_t pid : stopped) ASSERT_GT(pid, 0);
  for (const pid_t pid : stopped) ::kill(pid, SIGSTOP);
  const fs::path copy = second.copy();
  Process taking(taking_over(copy), root() / "away.out");
  const int trained = step_of(run_dir);
  EXPECT_TRUE(within(120s, [&] { return step_of(copy) >= trained + 3 || !taking.running(); }))
      << text(root() / "away.out") << logs(copy);
  ASSERT_TRUE(taking.running()) << text(root() / "away.out");
  const std::string ledger = text(run_dir / "ledger" / "events.log");
  for (const pid_t pid : stopped) ::kill(pid, SIGCONT);
  EXPECT_EQ(process.wait(60s), 3) << text(output()) << logs(run_dir);
  EXPECT_THAT(text(output()), HasSubstr("the run was taken over at"));
  EXPECT_EQ(json(run_dir / "status.json")["end"], "failed");
  EXPECT_THAT(text(run_dir / "failure.json"), HasSubstr("the run was taken over at"));
  EXPECT_LE(step_of(run_dir), trained + 1) << "what both sides had is carried out; nothing more is trained";
  taking.signal(SIGTERM);
  EXPECT_EQ(taking.wait(), 75) << text(root() / "away.out");
  expect_books_to_agree(copy);
  expect_nothing_trained_twice(copy);
}

TEST_F(StandbyRun, a_run_waits_for_its_standby_and_says_so) {
  auto standby = std::make_unique<Host>("waited-for");
  Host other("other");
  const std::string address = standby->address();
  const fs::path run_dir = root() / "waiting-for-standby";
  Process process(command(with({"run.steps=5000", "tasks.heldout=0"}, {&other, standby.get()}, *standby), run_dir),
                  output());
  ASSERT_TRUE(reaches_step(process, run_dir, 2)) << text(output());
  EXPECT_TRUE(within(20s, [&] { return standby_state(run_dir) == "up"; })) << text(run_dir / "status.json");
  standby->process.signal(SIGKILL);
  standby->process.wait();
  EXPECT_TRUE(within(30s, [&] { return standby_state(run_dir) == "lost"; })) << text(run_dir / "status.json");
  EXPECT_THAT(logs(run_dir), HasSubstr("the run waits for it"));
  const int step = step_of(run_dir);
  // Longer than roles may be silent: they wait, and are not taken for dead.
  std::this_thread::sleep_for(10s);
  EXPECT_LE(step_of(run_dir), step + 1);
  const Json status = json(run_dir / "status.json");
  EXPECT_EQ(status["restarts"].value("coordinator", 0), 0);
  EXPECT_EQ(status["restarts"].value("trainer", 0), 0);
  Host again("waited-for", address);
  ASSERT_TRUE(reaches_step(process, run_dir, step + 4)) << text(output()) << logs(run_dir);
  EXPECT_THAT(logs(run_dir), HasSubstr("has everything again"));
  process.signal(SIGTERM);
  EXPECT_EQ(process.wait(), 75) << text(output());
  expect_books_to_agree(run_dir);
  expect_nothing_trained_twice(run_dir);
}

TEST_F(StandbyRun, a_run_that_went_on_without_its_standby_is_not_taken_over_from_what_is_old) {
  auto standby = std::make_unique<Host>("left-behind");
  Host other("other-two");
  const std::string address = standby->address();
  const fs::path run_dir = root() / "going-on";
  Process process(
      command(with({"run.steps=5000", "tasks.heldout=0", "run.standby_lost=go_on"}, {&other, standby.get()}, *standby),
              run_dir),
      output());
  ASSERT_TRUE(reaches_step(process, run_dir, 2)) << text(output());
  standby->process.signal(SIGKILL);
  standby->process.wait();
  EXPECT_TRUE(within(30s, [&] { return standby_state(run_dir) == "lost"; })) << text(run_dir / "status.json");
  const int step = step_of(run_dir);
  ASSERT_TRUE(reaches_step(process, run_dir, step + 3)) << text(output()) << logs(run_dir);
  EXPECT_THAT(logs(run_dir), HasSubstr("the run goes on without it"));
  Host again("left-behind", address);
  EXPECT_TRUE(within(60s, [&] { return standby_state(run_dir) == "up"; })) << text(run_dir / "status.json");
  EXPECT_TRUE(within(60s, [&] {
    const auto record = standby::read_record_of(again.copy());
    return record && record->behind.empty() &&
           text(again.copy() / "metrics.jsonl").find("\"step\":" + std::to_string(step + 3)) != std::string::npos;
  }));
  process.signal(SIGTERM);
  EXPECT_EQ(process.wait(), 75) << text(output());
  // As a process leaves it that was killed while it caught up.
  auto record = standby::read_record_of(again.copy());
  ASSERT_TRUE(record);
  record->behind = {"trainer-0"};
  ASSERT_TRUE(standby::write_record_of(again.copy(), *record));
  Process taking(taking_over(again.copy()), root() / "behind.out");
  EXPECT_EQ(taking.wait(60s), 2);
  EXPECT_THAT(text(root() / "behind.out"), HasSubstr("the run went on without this copy"));
}

TEST_F(StandbyRun, a_copy_that_cannot_be_read_is_refused_before_the_run_is_taken_over) {
  auto standby = std::make_unique<Host>("damaged");
  Host other("undamaged");
  const fs::path run_dir = root() / "to-be-damaged";
  Process process(
      command(with({"run.steps=5000", "tasks.heldout=0", "run.standby_lost=go_on"}, {&other, standby.get()}, *standby),
              run_dir),
      output());
  ASSERT_TRUE(reaches_step(process, run_dir, 3)) << text(output());
  process.signal(SIGTERM);
  EXPECT_EQ(process.wait(), 75) << text(output());
  const fs::path copy = standby->copy();
  for (const char* file : {"ledger/events.log", "config.resolved.json", "standby-paths.json"}) {
    const std::string whole = text(copy / file);
    ASSERT_FALSE(whole.empty()) << file;
    std::string damaged = whole;
    damaged[damaged.size() / 2] = '\x01';
    ASSERT_TRUE(write_file(copy / file, damaged));
    Process taking(taking_over(copy), root() / "damaged.out");
    EXPECT_NE(taking.wait(60s), 0) << file;
    EXPECT_THAT(text(root() / "damaged.out"), HasSubstr((copy / file).string()));
    const auto record = standby::read_record_of(copy);
    ASSERT_TRUE(record);
    EXPECT_FALSE(record->is_taken) << file << ": the other side may be alive, and must go on";
    EXPECT_EQ(record->epoch, 1u) << file;
    ASSERT_TRUE(write_file(copy / file, whole));
  }
  // A copy cannot know what was done without it while its host was away, so that is said.
  Process taking(taking_over(copy), root() / "damaged.out");
  (void)within(120s, [&] { return json(copy / "status.json").value("state", "") == "running" || !taking.running(); });
  EXPECT_THAT(text(root() / "damaged.out"), HasSubstr("run.standby_lost is go_on"));
  taking.signal(SIGTERM);
  EXPECT_EQ(taking.wait(), 75) << text(root() / "damaged.out");
}

TEST_F(StandbyRun, goes_on_by_itself_where_most_hosts_hear_nothing_of_the_run) {
  ASSERT_EQ(run(kSteady, root() / "majority-undisturbed"), 0) << text(output());
  auto first = std::make_unique<Host>("with-the-run");
  Host second("standing-by"), third("voting");
  const fs::path run_dir = root() / "left-to-most";
  Arguments lent = with(kSteady, {first.get(), &second, &third}, second);
  lent.insert(lent.end(), {"run.standby_takes_over=majority", "run.standby_patience=5"});
  {
    Process process(command(lent, run_dir), output());
    ASSERT_TRUE(reaches_step(process, run_dir, 5)) << text(output());
    ASSERT_TRUE(within(60s, [&] { return text(second.log).find("goes on with run") != std::string::npos; }))
        << text(second.log);
    process.signal(SIGKILL);
    kill_roles(run_dir);
    first->process.signal(SIGKILL);
    process.wait();
  }
  first.reset();
  const fs::path copy = second.copy();
  ASSERT_TRUE(within(240s, [&] { return text(second.log).find("has ended with 0") != std::string::npos; }))
      << text(second.log) << text(copy / "logs" / "take-over.log");
  EXPECT_THAT(text(second.log), HasSubstr("2 of 3 hosts hear nothing of run left-to-most: it is taken over"));
  EXPECT_EQ(json(copy / "status.json")["end"], "done");
  EXPECT_EQ(export_digest(copy), export_digest(root() / "majority-undisturbed"));
  expect_books_to_agree(copy);
  expect_nothing_trained_twice(copy);
  // The old side is back.
  EXPECT_EQ(run(lent, run_dir, true), 3) << text(output());
  EXPECT_THAT(text(output()), HasSubstr("it has epoch 2 there, and this is epoch 1"));
  for (Host* host : {&second, &third}) {
    host->process.signal(SIGTERM);
    EXPECT_EQ(host->process.wait(60s), 0) << text(host->log);
  }
}

TEST_F(StandbyRun, that_is_cut_off_alone_takes_nothing_over) {
  Host first("not-cut-off"), second("cut-off"), third("not-cut-off-either");
  const fs::path run_dir = root() / "not-lost";
  const Arguments what = {"run.steps=5000", "tasks.heldout=0", "run.standby_takes_over=majority",
                          "run.standby_patience=5"};
  Process process(command(with(what, {&first, &second, &third}, second), run_dir), output());
  ASSERT_TRUE(reaches_step(process, run_dir, 3)) << text(output());
  ASSERT_TRUE(within(60s, [&] { return text(second.log).find("goes on with run") != std::string::npos; }))
      << text(second.log);
  // To the standby, all others are as if they were gone.
  const std::vector<pid_t> stopped = {process.pid(), pid_of(run_dir, "coordinator"), pid_of(run_dir, "trainer"),
                                      first.process.pid(), third.process.pid()};
  for (const pid_t pid : stopped) ASSERT_GT(pid, 0);
  for (const pid_t pid : stopped) ::kill(pid, SIGSTOP);
  EXPECT_TRUE(within(60s, [&] {
    return text(second.log).find("1 of 3 hosts hear nothing of run not-lost; 2 are needed") != std::string::npos;
  })) << text(second.log);
  for (const pid_t pid : stopped) ::kill(pid, SIGCONT);
  EXPECT_TRUE(within(60s, [&] { return text(second.log).find("run not-lost is heard again") != std::string::npos; }))
      << text(second.log);
  const int step = step_of(run_dir);
  EXPECT_TRUE(reaches_step(process, run_dir, step + 3)) << text(output()) << logs(run_dir);
  EXPECT_EQ(json(second.copy() / "standby.json")["taken"], false);
  // A run that was interrupted has given its hosts back, and waits for its own machine.
  process.signal(SIGTERM);
  EXPECT_EQ(process.wait(), 75) << text(output());
  EXPECT_THAT(text(second.log), HasSubstr("run not-lost is over"));
  expect_books_to_agree(run_dir);
}

TEST_F(StandbyRun, what_does_not_fit_is_refused_by_name) {
  const auto refused = [&](const Arguments& arguments, const std::string& words) {
    EXPECT_EQ(tandem(arguments), 2) << text(output());
    EXPECT_THAT(text(output()), HasSubstr(words));
  };
  const std::string config = std::string(TANDEM_SOURCE_DIR) + "/configs/tiny.yaml";
  refused({"run", config, "--dry-run", "run.standby=tcp://127.0.0.1:1"}, "run.hosts names none");
  refused({"run", config, "--dry-run", "run.hosts=[tcp://127.0.0.1:2]", "run.key=k", "run.standby=tcp://127.0.0.1:1"},
          "\"tcp://127.0.0.1:1\" is not in run.hosts");
  refused({"run", config, "--dry-run", "run.hosts=[tcp://127.0.0.1:2]", "run.key=k", "run.standby=tcp://127.0.0.1:2",
           "run.standby_takes_over=majority"},
          "run.standby_takes_over: a majority needs 3 hosts or more, and run.hosts names 1");
  const Arguments three = {"run",
                           config,
                           "--dry-run",
                           "run.key=k",
                           "run.standby_takes_over=majority",
                           "run.hosts=[tcp://127.0.0.1:2,tcp://127.0.0.1:3,tcp://127.0.0.1:4]"};
  refused(three, "run.standby_takes_over: the run has no standby that could take it over");
  Arguments going_on = three;
  going_on.insert(going_on.end(), {"run.standby=tcp://127.0.0.1:2", "run.standby_lost=go_on"});
  refused(going_on, "run.standby_takes_over: with run.standby_lost=go_on");
  refused({"run", "--take-over", root().string(), "run.standby="}, "is no copy that a host keeps of a run");
  refused({"run", config, "--take-over", root().string()}, "leave out " + config);
  refused({"run", config, "--accept-loss"}, "--accept-loss is for --take-over");
  refused({"run"}, "which config?");
  refused({"run", "--resume", "--run-dir", "/nowhere/run"}, "/nowhere/run: there is no run to go on with");
}

}  // namespace
}  // namespace tandem
