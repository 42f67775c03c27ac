// Hundreds of episodes at once over the real socket, while the processes below the server are killed at random.
#include <signal.h>

#include <map>
#include <mutex>
#include <set>
#include <thread>

#include "base/random.h"
#include "envs/sandbox/pool.h"
#include "envs/server/server.h"
#include "tests/envs/sandbox_fixture.h"

namespace tandem::envs {
namespace {

using namespace std::chrono_literals;

struct ServingProcess {
  pid_t parent = 0;
  std::string name;
};

std::map<pid_t, ServingProcess> processes() {
  std::map<pid_t, ServingProcess> found;
  for (const auto& entry : fs::directory_iterator("/proc")) {
    const pid_t id = atoi(entry.path().filename().c_str());
    const auto stat = id > 0 ? read_file(entry.path() / "stat") : fail(Status::not_found(""));
    if (!stat) continue;
    const auto begin = stat->find('(') + 1, end = stat->rfind(')');
    if (stat->at(end + 2) == 'Z') continue;
    found[id] = {atoi(stat->c_str() + end + 4), stat->substr(begin, end - begin)};
  }
  return found;
}

// What can be killed, by what it is.
std::map<std::string, std::vector<pid_t>> victims() {
  const auto all = processes();
  std::map<std::string, std::vector<pid_t>> found;
  const auto kind_of = [&](pid_t id) -> std::string {
    int depth = 0;  // below a spawner of ours
    for (auto at = all.find(id); at != all.end() && depth < 64; at = all.find(at->second.parent), ++depth) {
      if (at->second.parent != getpid()) continue;
      if (depth == 0) return "spawner";
      if (depth == 1) return all.at(id).name == "tandem-maker" ? "maker" : "first process";
      return "shell";  // or what serves a call, or a program of a call
    }
    return "";
  };
  for (const auto& [id, process] : all) {
    if (const auto kind = kind_of(id); !kind.empty()) found[kind].push_back(id);
  }
  return found;
}

// One episode of a scripted rollout: some turns, then the answer. It is tried again as a rollout would.
struct Script {
  static constexpr uint32_t kTurns = 3, kAttempts = 4;
  uint64_t episode = 0, lease = 0;
  uint32_t attempt = 0, turn = 0;
  std::string ended_as;
  Time asked{};
};

class ServerFaults : public testing::TestWithParam<IsolatedBy> {
 protected:
  void ask(Script& script, wire::Outgoing& message) {
    script.asked = clock_.now();
    ASSERT_TRUE(client_->send("", message).ok());
  }
  void acquire(Script& script) {
    ++acquires_;
    script.lease = 0;
    script.turn = 0;
    wire::Outgoing message(script.episode);
    auto in = message.body().initAcquire();
    in.setEpisode(script.episode);
    in.setAttempt(script.attempt);
    in.setKind(script.episode % 4 == 0 ? "bug" : "count");
    in.setSplit("train");
    in.setSeed(script.episode);
    ask(script, message);
  }
  void next(Script& script) {
    wire::Outgoing message(script.episode);
    if (script.turn < Script::kTurns) {
      auto in = message.body().initCall();
      in.setLease(script.lease);
      in.setTurn(script.turn++);
      auto call = in.initCalls(1)[0];
      call.setName("run_terminal_cmd");
      call.setArguments(R"({"command": "sleep 0.05; ls"})");
    } else {
      auto in = message.body().initScore();
      in.setLease(script.lease);
      in.setAnswer("done");
    }
    ask(script, message);
  }
  void release(const Script& script) {
    if (script.lease == 0) return;
    wire::Outgoing message(script.episode);
    message.body().setRelease(script.lease);
    ASSERT_TRUE(client_->send("", message).ok());
  }
  void on(Script& script, const wire::Body::Reader& body) {
    EXPECT_LT(to_seconds(clock_.now() - script.asked), 90) << "longer than any call may take, and its turn to come";
    if (body.isAcquired()) {
      script.lease = body.getAcquired().getLease();
      next(script);
    } else if (body.isCalled()) {
      next(script);
    } else if (body.isScored()) {
      script.ended_as = "scored";
      release(script);
    } else if (body.isFailed()) {
      const std::string code = body.getFailed().getCode().cStr();
      ++failures_[code];
      last_[code] = body.getFailed().getMessage().cStr();
      release(script);
      if (++script.attempt < Script::kAttempts) return acquire(script);
      script.ended_as = code;
    }
  }
  // Kills something, or nothing, as the dice fall.
  void kill_at_random(Random& random) {
    const auto dice = random.below(100);
    const bool spawner = dice < 1 && killed_["spawner"] < 4;
    const char* kind = spawner     ? "spawner"
                       : dice < 5  ? "maker"
                       : dice < 10 ? "first process"
                       : dice < 20 ? "shell"
                                   : "";
    if (*kind == 0) return;
    const auto all = victims();
    for (const auto& [what, ids] : all) {
      if (what == "spawner") spawners_.insert(ids.begin(), ids.end());
      if (what == kind && kill(ids[random.below(ids.size())], SIGKILL) == 0) ++killed_[what];
    }
  }

  const SystemClock clock_{};
  std::optional<wire::Socket> client_;
  std::map<std::string, int> failures_, killed_;
  std::map<std::string, std::string> last_;
  std::set<pid_t> spawners_;
  uint64_t acquires_ = 0;
};

FOR_BOTH_KINDS_OF_SANDBOXES(ServerFaults);

TEST_P(ServerFaults, every_episode_ends_with_a_typed_outcome_and_nothing_is_left) {
  if (GetParam() == IsolatedBy::kBubblewrap && !fs::exists("/usr/bin/bwrap")) GTEST_SKIP() << "no bubblewrap";
  const size_t descriptors = count_entries("/proc/self/fd");
  const auto mounts = mounts_here();
  const auto address = "ipc:///tmp/tandem-faults-" + std::to_string(getpid());
  Random random(20);
  std::vector<Script> scripts(200);
  ServerCounters last;
  {
    auto backend = NamespaceBackend::start(GetParam());
    ASSERT_TRUE(backend.has_value()) << backend.error().to_string();
    SandboxPool pool(**backend, clock_, {}, {.least = 4, .most = 8});
    StopFlags stop;
    std::mutex mutex;
    std::thread server([&] {
      const ServerSettings settings{.address = address,
                                    .identity = {.sender = "env", .epoch = 1, .run = 7},
                                    .threads = 8,
                                    .episode = {.call_time_limit_s = 20, .test_time_limit_s = 20}};
      EXPECT_TRUE(serve(settings, pool, clock_, stop, [&](const std::string&, const ServerCounters& counters) {
        std::lock_guard lock(mutex);
        last = counters;
      }));
    });
    zmq::context_t context;
    client_ = std::move(*wire::Socket::connect(context, address, {.sender = "rollout", .epoch = 1, .run = 7}));
    ASSERT_TRUE(within(30s, [&] {
      wire::Outgoing hello(0);
      hello.body().initHello();
      return client_->send("", hello).ok();
    })) << "nobody listens";
    for (size_t i = 0; i < scripts.size(); ++i) {
      scripts[i].episode = i;
      acquire(scripts[i]);
    }
    size_t ended = 0;
    const Time deadline = clock_.now() + 300s;
    while (ended < scripts.size() && clock_.now() < deadline) {
      wire::Socket* const sockets[] = {&*client_};
      wire::wait(sockets, 50ms);
      while (auto message = client_->receive()) {
        auto& script = scripts.at(message->id());
        on(script, message->body());
        ended += script.ended_as.empty() ? 0 : 1;
        kill_at_random(random);
      }
    }
    EXPECT_EQ(ended, scripts.size()) << "some hang";
    EXPECT_TRUE(within(30s, [&] {
      std::lock_guard lock(mutex);
      return last.live == 0 && last.waiting == 0;
    })) << last.live;
    stop.now = true;
    server.join();
    // One is started when it is needed; one that was killed twice before it was gone counts once.
    EXPECT_TRUE((*backend)->create({}).has_value());
    EXPECT_GE((*backend)->spawners_started(), 2u);
    EXPECT_LE((*backend)->spawners_started(), static_cast<uint64_t>(killed_["spawner"]) + 1);
    client_.reset();
  }
  std::map<std::string, int> outcomes;
  for (const auto& script : scripts) ++outcomes[script.ended_as];
  for (const auto& [what, count] : killed_) printf("killed %s: %d\n", what.c_str(), count);
  for (const auto& [what, count] : outcomes) printf("ended as %s: %d\n", what.c_str(), count);
  for (const auto& [what, count] : failures_) printf("failed %s: %d, %s\n", what.c_str(), count, last_[what].c_str());
  EXPECT_EQ(last.acquired, acquires_);
  EXPECT_GT(outcomes["scored"], 100);
  for (const auto& [code, count] : failures_) {
    EXPECT_THAT(code, testing::AnyOf("unavailable", "deadline")) << last_[code];
  }
  for (const char* kind : {"spawner", "first process", "shell"}) EXPECT_GT(killed_[kind], 0) << kind;

  EXPECT_TRUE(within(30s, [] { return children_of(getpid()).empty(); }));
  fs::remove(address.substr(6));
  EXPECT_EQ(count_entries("/proc/self/fd"), descriptors);
  EXPECT_EQ(mounts_here(), mounts);
  // Bubblewrap and its spawner, killed in the same tenth of a millisecond, may leave a process, until the next
  // start.
  ASSERT_TRUE(NamespaceBackend::start(GetParam()).has_value());
  for (const pid_t spawner : spawners_) EXPECT_THAT(groups_of(spawner), testing::IsEmpty());
}

}  // namespace
}  // namespace tandem::envs
