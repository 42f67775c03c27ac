// `tandem envs` on a real environment server with real sandboxes, whose rollout is this test; and on a run.
#include <gmock/gmock.h>
#include <sys/stat.h>

#include <thread>

#include "envs/fleet/watched_backend.h"
#include "envs/sandbox/namespace_backend.h"
#include "envs/server/server.h"
#include "tests/cli/run_fixture.h"
#include "wire/socket.h"

namespace tandem {
namespace {

using testing::HasSubstr;

std::vector<Json> lines_of_json(const std::string& text) {
  std::vector<Json> found;
  for (const auto line : split(trim(text), '\n')) {
    auto parsed = parse_json(line);
    if (parsed && parsed->is_object()) found.push_back(std::move(*parsed));
  }
  return found;
}

// A rollout that does what it is told.
class ScriptedRollout {
 public:
  ScriptedRollout(const std::string& address, uint64_t run)
      : socket_(*wire::Socket::connect(context_, address, {.sender = "rollout-9", .epoch = 1, .run = run})) {}

  void send(const std::function<void(wire::Body::Builder)>& write) {
    wire::Outgoing message(++id_);
    write(message.body());
    ASSERT_TRUE(within(60s, [&] { return socket_.send("", message).ok(); })) << "nobody listens";
  }
  std::optional<wire::Incoming> answer(std::chrono::milliseconds limit = 20s) {
    std::optional<wire::Incoming> message;
    (void)within(limit, [&] {
      while ((message = socket_.receive())) {
        if (message->id() == id_) return true;
      }
      return false;
    });
    return message;
  }
  void acquire(uint64_t episode) {
    send([&](wire::Body::Builder body) {
      auto in = body.initAcquire();
      in.setEpisode(episode);
      in.setAttempt(1);
      in.setKind("count");
      in.setSplit("train");
      in.setSeed(episode);
    });
    const auto message = answer();
    ASSERT_TRUE(message && message->body().isAcquired());
    lease_ = message->body().getAcquired().getLease();
  }
  void begin_call(const std::string& command) {
    send([&](wire::Body::Builder body) {
      auto in = body.initCall();
      in.setLease(lease_);
      in.setTurn(++turn_);
      auto call = in.initCalls(1)[0];
      call.setName("run_terminal_cmd");
      call.setArguments(dump_json(Json{{"command", command}}));
    });
  }
  // What the model is shown; the error's words where there is one.
  std::string called() {
    const auto message = answer();
    if (!message) return "no answer";
    const auto body = message->body();
    if (body.isFailed())
      return body.getFailed().getCode().cStr() + std::string(": ") + body.getFailed().getMessage().cStr();
    return body.isCalled() ? std::string(body.getCalled().getResults()[0]) : "something else";
  }
  std::string call(const std::string& command) {
    begin_call(command);
    return called();
  }
  void begin_score() {
    send([&](wire::Body::Builder body) {
      auto in = body.initScore();
      in.setLease(lease_);
      in.setAnswer("done");
    });
  }
  void release() {
    send([&](wire::Body::Builder body) { body.setRelease(lease_); });
  }

 private:
  zmq::context_t context_;
  wire::Socket socket_;
  uint64_t id_ = 0, lease_ = 0;
  uint32_t turn_ = 0;
};

class EnvsCommand : public RunTest {
 protected:
  // `tandem envs` with these arguments; its standard output and error.
  struct Said {
    int code = 0;
    std::string out, err;
  };
  static Said envs(const std::string& arguments) {
    const auto out = root() / "envs.out", err = root() / "envs.err";
    const std::string command = std::string("'" TANDEM_BINARY "' envs ") + arguments + " >" + out.string() + " 2>" +
                                err.string() + " </dev/null";
    const int code = Process({"/bin/sh", "-c", command}, root() / "sh.out").wait(60s);
    return {code, text(out), text(err)};
  }
  static std::vector<Json> sandboxes(const fs::path& run_dir) {
    return lines_of_json(envs("ls " + run_dir.string() + " --json").out);
  }
  static std::optional<Json> one_that_is(const fs::path& run_dir, const std::string& state) {
    for (auto& each : sandboxes(run_dir)) {
      if (each["state"] == state) return each;
    }
    return std::nullopt;
  }
};

// The role `env` as a run starts it, without the rest of the run.
class EnvsOfServer : public EnvsCommand {
 protected:
  void SetUp() override {
    run_dir_ = root() / "server";
    const auto first = root() / "of-config";
    if (!fs::exists(first / "config.resolved.json")) {
      ASSERT_EQ(run({"run.steps=0", "tasks.heldout=0", "env.warm=1", "env.most_warm=1"}, first), 0) << text(output());
    }
    fs::create_directories(run_dir_);
    fs::copy_file(first / "config.resolved.json", run_dir_ / "config.resolved.json",
                  fs::copy_options::overwrite_existing);
    layout_.emplace(*run::RunLayout::establish(run_dir_));
    fs::create_directories(layout_->socket_folder());
    ::chmod(layout_->socket_folder().c_str(), 0700);
    start();
    rollout_.emplace(env_address().text(), layout_->run_id());
  }
  void TearDown() override {
    rollout_.reset();
    server_.reset();
    std::error_code ignored;
    fs::remove_all(layout_->socket_folder(), ignored);
    fs::remove_all(run_dir_, ignored);
  }
  void start() {
    server_.emplace(Arguments{TANDEM_BINARY, "role", "env", "--run-dir", run_dir_.string()}, root() / "server.log");
    const auto socket = env_address().path();
    ASSERT_TRUE(within(20s, [&] { return fs::exists(socket) || !server_->running(); }));
    // Its socket is there before it listens; a test may stop it at once.
    ASSERT_TRUE(within(20s, [&] { return !server_->running() || envs("ls " + run()).code == 0; }));
    ASSERT_TRUE(server_->running()) << text(root() / "server.log");
  }
  std::string run() const { return run_dir_.string(); }
  wire::Address env_address() const { return layout_->address({wire::Role::kEnv, 0}); }

  fs::path run_dir_;
  std::optional<run::RunLayout> layout_;
  std::optional<Process> server_;
  std::optional<ScriptedRollout> rollout_;

 private:
  using RunTest::run;
};

TEST_F(EnvsOfServer, ls_shows_whose_a_sandbox_is_and_logs_what_was_done_in_it) {
  ASSERT_TRUE(within(60s, [&] { return one_that_is(run_dir_, "warm").has_value(); }));
  rollout_->acquire(12);
  EXPECT_THAT(rollout_->call("exit 3"), HasSubstr("[exit code 3]"));
  const auto leased = one_that_is(run_dir_, "leased");
  ASSERT_TRUE(leased);
  const std::string id = (*leased)["sandbox"].get<std::string>();
  EXPECT_EQ((*leased)["server"], "env-0");
  EXPECT_EQ((*leased)["episode"], 12);
  EXPECT_EQ((*leased)["attempt"], 1);
  EXPECT_THAT((*leased)["task"].get<std::string>(), testing::StartsWith("count/"));
  EXPECT_EQ((*leased)["calls"], 1);
  EXPECT_GE((*leased)["processes"].get<int>(), 1);
  EXPECT_GT((*leased)["lease_seconds"].get<double>(), 100);
  EXPECT_LE((*leased)["lease_seconds"].get<double>(), 180);
  const auto table = envs("ls " + run());
  EXPECT_EQ(table.code, 0) << table.err;
  EXPECT_THAT(table.out, HasSubstr("sandbox"));
  EXPECT_THAT(table.out, testing::ContainsRegex(id + " +leased .* 12.1 .* env-0\n"));

  rollout_->release();
  ASSERT_TRUE(within(60s, [&] { return envs("logs " + run() + " " + id).out.find("released") != std::string::npos; }));
  const auto events = lines_of_json(envs("logs " + run() + " " + id + " --json").out);
  std::vector<std::string> kinds;
  for (const auto& event : events) kinds.push_back(event["event"].get<std::string>());
  EXPECT_THAT(kinds, testing::ElementsAre("made", "leased", "call", "ended"));
  EXPECT_EQ(events.at(2)["what"], "run_terminal_cmd");
  EXPECT_EQ(events.at(2)["exit_code"], 3);
  EXPECT_EQ(events.at(2)["episode"], 12);
  EXPECT_EQ(lines_of_json(envs("logs " + run() + " -n 1 --json").out).size(), 1u);
  EXPECT_EQ(lines_of_json(envs("logs " + run() + " -n 4096 --json").out).size(),
            lines_of_json(envs("logs " + run() + " --json").out).size());
}

TEST_F(EnvsOfServer, logs_follow_what_comes_and_end_with_the_server) {
  Process follower({TANDEM_BINARY, "envs", "logs", run(), "--follow", "--json", "-n", "0", "--timeout", "3"},
                   root() / "follow");
  rollout_->acquire(5);
  const auto is_followed = [&] {
    (void)rollout_->call("true");
    return text(root() / "follow").find("run_terminal_cmd") != std::string::npos;
  };
  ASSERT_TRUE(within(20s, is_followed)) << text(root() / "follow");
  server_->signal(SIGKILL);
  EXPECT_EQ(follower.wait(60s), 1);
  EXPECT_THAT(text(root() / "follow"), HasSubstr("environment server"));
}

TEST_F(EnvsOfServer, exec_runs_while_a_call_does_and_the_episode_does_not_notice) {
  rollout_->acquire(1);
  (void)rollout_->call("mkdir deep; cd deep; export COLOUR=green");
  rollout_->begin_call("touch begun; while [ ! -e go ]; do sleep 0.02; done; echo went");
  std::optional<Json> calling;
  ASSERT_TRUE(within(20s, [&] { return (calling = one_that_is(run_dir_, "calling")).has_value(); }));
  EXPECT_EQ((*calling)["doing"], "run_terminal_cmd");
  const std::string at = run() + " " + (*calling)["sandbox"].get<std::string>();
  const auto seen =
      envs("exec " + at + " -- bash -c 'pwd; echo $COLOUR; ls; cd /; export COLOUR=red; echo no >&2; exit 7'");
  EXPECT_EQ(seen.code, 7);
  EXPECT_EQ(seen.out, "/workspace/deep\ngreen\nbegun\n");
  EXPECT_EQ(seen.err, "no\n");
  EXPECT_EQ(envs("exec " + at + " -- touch go").code, 0);
  EXPECT_EQ(rollout_->called(), "went\n");
  EXPECT_EQ(rollout_->call("pwd; echo $COLOUR"), "/workspace/deep\ngreen\n");
}

TEST_F(EnvsOfServer, exec_is_bounded_in_time_and_output) {
  rollout_->acquire(1);
  const auto leased = one_that_is(run_dir_, "leased");
  ASSERT_TRUE(leased);
  const std::string at = run() + " " + (*leased)["sandbox"].get<std::string>();
  const auto late = envs("exec " + at + " --seconds 0.2 -- sleep 100");
  EXPECT_EQ(late.code, 124);
  EXPECT_THAT(late.err, HasSubstr("0.2 s"));
  EXPECT_EQ(envs("exec " + at + " -- no-such-program").code, 127);
  const auto long_one =
      lines_of_json(envs("exec " + at + " --output-bytes 1000 --json -- bash -c 'yes | head -c 5000000'").out);
  ASSERT_EQ(long_one.size(), 1u);
  EXPECT_EQ(long_one[0]["truncated"], true);
  EXPECT_LT(long_one[0]["output"].get<std::string>().size(), 1300u);
  EXPECT_EQ(envs("exec " + at).code, 2) << "no command";
}

TEST_F(EnvsOfServer, kill_during_a_call_is_a_typed_failure_and_never_a_reward) {
  rollout_->acquire(31);
  rollout_->begin_call("sleep 100");
  std::optional<Json> calling;
  ASSERT_TRUE(within(20s, [&] { return (calling = one_that_is(run_dir_, "calling")).has_value(); }));
  const std::string id = (*calling)["sandbox"].get<std::string>();
  const auto killed = envs("kill " + run() + " " + id);
  EXPECT_EQ(killed.code, 0) << killed.err;
  EXPECT_THAT(killed.out, HasSubstr(id + " was calling (run_terminal_cmd) and is ended"));
  EXPECT_THAT(killed.out, HasSubstr("episode 31 attempt 1"));
  EXPECT_EQ(rollout_->called(), "unavailable: an operator ended the sandbox");
  EXPECT_THAT(envs("ls " + run()).out, HasSubstr("draining"));
  rollout_->release();
  ASSERT_TRUE(within(60s, [&] { return !one_that_is(run_dir_, "draining"); }));
  const auto again = envs("kill " + run() + " " + id);
  EXPECT_EQ(again.code, 1);
  EXPECT_EQ(again.err, "tandem envs: sandbox " + id + " has ended (operator)\n");
  const auto top = lines_of_json(envs("top " + run() + " --once --json").out);
  ASSERT_EQ(top.size(), 1u);
  EXPECT_EQ(top[0]["kills"]["operator"], 1);
}

TEST_F(EnvsOfServer, kill_between_calls_fails_the_next_request_whatever_it_is) {
  for (const bool scores : {false, true}) {
    rollout_->acquire(40 + (scores ? 1 : 0));
    (void)rollout_->call("touch there");
    const auto leased = one_that_is(run_dir_, "leased");
    ASSERT_TRUE(leased);
    EXPECT_EQ(envs("kill " + run() + " " + (*leased)["sandbox"].get<std::string>()).code, 0);
    if (scores) rollout_->begin_score();
    EXPECT_EQ(scores ? rollout_->called() : rollout_->call("ls"), "unavailable: an operator ended the sandbox");
    rollout_->release();
  }
}

TEST_F(EnvsOfServer, a_wrong_name_is_answered_with_the_nearest_one) {
  rollout_->acquire(1);
  const auto leased = one_that_is(run_dir_, "leased");
  ASSERT_TRUE(leased);
  const std::string id = (*leased)["sandbox"].get<std::string>();
  auto wrong = id;
  std::swap(wrong[1], wrong[2]);
  if (wrong == id) wrong[1] = wrong[1] == 'a' ? 'b' : 'a';
  for (const std::string command : {"kill ", "logs ", "exec "}) {
    const auto said = envs(command + run() + " " + wrong + (command == "exec " ? " -- ls" : ""));
    EXPECT_EQ(said.code, 1);
    EXPECT_THAT(said.err, HasSubstr("there is no sandbox " + wrong + "; did you mean \"")) << command;
  }
  const auto no_name = envs("kill " + run() + " 'A B'");
  EXPECT_EQ(no_name.code, 2);
  EXPECT_THAT(no_name.err, HasSubstr("\"A B\" is not the name of a sandbox"));
}

TEST_F(EnvsOfServer, top_prints_a_line_a_second_where_there_is_no_terminal) {
  rollout_->acquire(1);
  const auto top = envs("top " + run() + " --seconds 2");
  EXPECT_EQ(top.code, 0) << top.err;
  EXPECT_EQ(split(trim(top.out), '\n').size(), 2u) << top.out;
  EXPECT_THAT(top.out, HasSubstr("1 in use (0 calling, 0 grading)"));
  const auto json = lines_of_json(envs("top " + run() + " --once --json").out);
  ASSERT_EQ(json.size(), 1u);
  EXPECT_EQ(json[0]["sandboxes"]["leased"], 1);
  EXPECT_GT(json[0]["spawns"]["p50_ms"].get<double>(), 0);
  EXPECT_EQ(json[0]["queue"]["limit"], 4096);
}

TEST_F(EnvsOfServer, top_draws_on_a_terminal_as_much_as_it_holds) {
  rollout_->acquire(1);
  const auto screen = root() / "screen";
  Process top({"/usr/bin/script", "-qec",
               "stty rows 7 cols 60; exec '" TANDEM_BINARY "' envs top " + run() + " --seconds 1", screen.string()},
              root() / "script.out");
  EXPECT_EQ(top.wait(30s), 0);
  const auto shown = text(screen);
  EXPECT_THAT(shown, HasSubstr("env-0  up "));
  EXPECT_THAT(shown, HasSubstr("\x1b[H"));
  EXPECT_THAT(shown, HasSubstr("... "));
  EXPECT_EQ(shown.find("256 processes"), std::string::npos) << "beyond its right edge";
}

TEST_F(EnvsOfServer, many_operators_that_do_not_listen_hold_no_episode_up) {
  rollout_->acquire(1);
  zmq::context_t context;
  std::vector<wire::Socket> deaf;
  for (int i = 0; i < 4; ++i) {
    deaf.push_back(*wire::Socket::connect(context, env_address().text(),
                                          {.sender = "deaf-" + std::to_string(i), .run = layout_->run_id()}));
    ASSERT_TRUE(within(60s, [&] {
      wire::Outgoing message(1);
      message.body().initFleetQuery().initRows().setMost(512);
      return deaf.back().send("", message).ok();
    }));
    for (int question = 0; question < 1000; ++question) {
      wire::Outgoing message(2);
      auto look = message.body().initFleetQuery().initExec();
      look.setSandbox("zzzz-1");
      look.initArgv(1).set(0, "sleep");
      look.setSeconds(100);
      look.setOutputBytes(1);
      (void)deaf.back().send("", message);
    }
  }
  const auto began = std::chrono::steady_clock::now();
  EXPECT_THAT(rollout_->call("echo still here"), HasSubstr("still here"));
  EXPECT_LT(std::chrono::steady_clock::now() - began, 50s);
}

TEST_F(EnvsOfServer, a_server_that_is_gone_stopped_or_anothers_is_one_clear_line) {
  server_->signal(SIGSTOP);
  auto said = envs("ls " + run() + " --timeout 0.5");
  EXPECT_EQ(said.code, 1);
  EXPECT_EQ(said.err, "tandem envs: no environment server answers at " + env_address().text() + "\n");
  server_->signal(SIGCONT);
  EXPECT_EQ(envs("ls " + run()).code, 0);

  server_->signal(SIGKILL);
  server_->wait();
  for (const std::string command : {"ls", "top --once", "logs"}) {
    said = envs(command + " " + run() + " --timeout 0.5");
    EXPECT_EQ(said.code, 1);
    EXPECT_EQ(said.out, "");
    EXPECT_EQ(said.err, "tandem envs: no environment server of " + run() + " is alive: the run has not begun\n");
  }
  // The next life of it is found, and does not know the names of the one before.
  start();
  EXPECT_EQ(envs("ls " + run()).code, 0);

  said = envs("ls " + run() + " --endpoint tcp://127.0.0.1:1 --timeout 0.3");
  EXPECT_EQ(said.code, 1);
  EXPECT_EQ(said.err, "tandem envs: no environment server answers at tcp://127.0.0.1:1\n");
  said = envs("ls " + run() + " --endpoint " + env_address().text() + " --endpoint tcp://127.0.0.1:1 --timeout 3");
  EXPECT_EQ(said.code, 5);
  EXPECT_EQ(envs("ls " + run() + " --endpoint localhost").code, 2);
  EXPECT_EQ(envs("ls " + (root() / "nowhere").string()).code, 2);

  const auto other = root() / "other";
  fs::create_directories(other);
  fs::copy_file(run_dir_ / "config.resolved.json", other / "config.resolved.json");
  ASSERT_TRUE(run::RunLayout::establish(other));
  said = envs("ls " + other.string() + " --endpoint " + env_address().text() + " --timeout 0.5");
  EXPECT_EQ(said.code, 1);
  EXPECT_THAT(said.err, HasSubstr("is it a server of this run?"));
}

// On another host there is no run directory to find a server through, but its address.
TEST_F(EnvsCommand, a_server_on_another_host_is_reached_by_its_endpoint) {
  const fs::path run_dir = root() / "far";
  ASSERT_TRUE(make_directories(run_dir));
  ASSERT_TRUE(write_file(run_dir / "config.resolved.json", "{}"));
  const run::RunLayout layout = *run::RunLayout::establish(run_dir);
  const SystemClock clock;
  auto backend = envs::NamespaceBackend::start(envs::IsolatedBy::kNamespaces);
  ASSERT_TRUE(backend) << backend.error().to_string();
  std::string address;
  {
    zmq::context_t context;
    address = wire::Socket::listen(context, "tcp://127.0.0.1:*", {.sender = "x"})->address();
  }
  envs::WatchedBackend watched(**backend, clock, 1);
  envs::StopFlags stop;
  std::thread server([&] {
    EXPECT_TRUE(envs::serve(
        {.address = address, .identity = {.sender = "env-3", .epoch = 1, .run = layout.run_id()}, .fleet = &watched},
        watched, clock, stop, [](const std::string&, const envs::ServerCounters&) {}));
  });
  {
    ScriptedRollout rollout(address, layout.run_id());
    rollout.acquire(8);
    const auto seen = lines_of_json(envs("ls " + run_dir.string() + " --endpoint " + address + " --json").out);
    ASSERT_EQ(seen.size(), 1u);
    EXPECT_EQ(seen[0]["server"], "env-3");
    EXPECT_EQ(seen[0]["episode"], 8);
    const auto looked = envs("exec " + run_dir.string() + " " + seen[0]["sandbox"].get<std::string>() + " --endpoint " +
                             address + " -- echo far");
    EXPECT_EQ(looked.out, "far\n") << looked.err;
    // Nothing that runs for an operator outlives the server.
    Process operator_command({TANDEM_BINARY, "envs", "exec", run_dir.string(), seen[0]["sandbox"].get<std::string>(),
                              "--endpoint", address, "--seconds", "100", "--", "sleep", "100"},
                             root() / "operator");
    ASSERT_TRUE(within(20s, [&] { return watched.rows(0, 1).at(0).usage.processes > 1; }));
    const auto began = std::chrono::steady_clock::now();
    stop.now = true;
    server.join();
    EXPECT_LT(std::chrono::steady_clock::now() - began, 60s);
  }
  EXPECT_EQ(watched.size(), 0u);
}

TEST_F(EnvsCommand, a_run_tries_the_episode_again_whose_sandbox_an_operator_ended) {
  const fs::path run_dir = root() / "killed-sandbox";
  Process process(command({"run.steps=5000", "tasks.heldout=0", "run.silence_seconds=60", "env.warm=1"}, run_dir),
                  output());
  ASSERT_TRUE(reaches_step(process, run_dir, 1)) << text(output());
  // Rollouts that stand still keep what they have leased.
  const auto signal_rollouts = [&](int number) {
    for (int rank = 0; rank < 2; ++rank) {
      if (const pid_t pid = pid_of(run_dir, "rollout", rank); pid > 0) signal(run_dir, pid, number);
    }
  };
  std::optional<Json> leased;
  const auto kill_one = [&] {
    signal_rollouts(SIGSTOP);
    // What they had asked for is answered first.
    const bool found = within(2s, [&] {
      for (auto& each : sandboxes(run_dir)) {
        leased = each;
        if (each["state"] == "leased" && each["calls"].get<int>() > 0 && each["state_seconds"].get<double>() > 0.5)
          return true;
      }
      return false;
    });
    const bool done =
        found && envs("kill " + run_dir.string() + " " + leased->at("sandbox").get<std::string>()).code == 0;
    signal_rollouts(SIGCONT);
    return done;
  };
  ASSERT_TRUE(within(60s, kill_one)) << text(output());
  const int step = step_of(run_dir);
  ASSERT_TRUE(reaches_step(process, run_dir, step + 3)) << text(output());
  process.signal(SIGINT);
  ASSERT_EQ(process.wait(60s), 75) << text(output());
  EXPECT_THAT(logs(run_dir), HasSubstr("an operator ended the sandbox"));
  expect_books_to_agree(run_dir);
  const auto all = episodes(run_dir);
  const auto number = (*leased)["episode"].get<size_t>();
  ASSERT_LT(number, all.size());
  EXPECT_GT(all[number]["attempt"].get<int>(), (*leased)["attempt"].get<int>()) << all[number];
  EXPECT_NE(all[number]["outcome"], "infra_error") << all[number];
  // When the run has ended so has its server, and that is said.
  const auto said = envs("ls " + run_dir.string());
  EXPECT_EQ(said.code, 1);
  EXPECT_EQ(said.err, "tandem envs: no environment server of " + run_dir.string() +
                          " is alive: the run was interrupted; `tandem run --resume` goes on with it\n");
}

}  // namespace
}  // namespace tandem
