// Episodes that begin as another one is, asked for over the real socket.
#include <functional>
#include <thread>

#include "base/behaviour.h"
#include "envs/server/server.h"
#include "tests/envs/sandbox_fixture.h"

namespace tandem::envs {
namespace {

class ServerBranches : public SandboxTest {
 protected:
  void SetUp() override {
    SandboxTest::SetUp();
    server_ = std::thread([this] {
      const ServerSettings settings{
          .address = address_, .identity = {.sender = "env-0", .epoch = 1, .run = 1}, .threads = 4, .episode = {}};
      EXPECT_TRUE(serve(settings, *backend_, clock_, stop_, [](const std::string&, const ServerCounters&) {}));
    });
    client_.emplace(*wire::Socket::connect(context_, address_, {.sender = "rollout-0", .epoch = 1, .run = 1}));
  }
  void TearDown() override {
    stop_.now = true;
    if (server_.joinable()) server_.join();
    SandboxTest::TearDown();
  }

  std::optional<wire::Incoming> ask(const std::function<void(wire::Body::Builder)>& write) {
    wire::Outgoing message(++last_);
    write(message.body());
    EXPECT_TRUE(within(30s, [&] { return client_->send("", message).ok(); }));
    std::optional<wire::Incoming> answer;
    EXPECT_TRUE(within(60s, [&] {
      while ((answer = client_->receive())) {
        if (answer->id() == last_) return true;
      }
      return false;
    }));
    return answer;
  }
  // The lease, or 0 and why_.
  uint64_t acquire(uint64_t episode, uint64_t trunk = 0, uint32_t turn = 0) {
    const auto answer = ask([&](wire::Body::Builder body) {
      auto in = body.initAcquire();
      in.setEpisode(episode);
      in.setAttempt(1);
      in.setKind("set");
      in.setSplit("train");
      in.setSeed(5);
      in.setBranches(true);
      in.setTrunkLease(trunk);
      in.setTrunkTurn(turn);
    });
    if (answer && answer->body().isFailed()) why_ = answer->body().getFailed().getMessage().cStr();
    return answer && answer->body().isAcquired() ? answer->body().getAcquired().getLease() : 0;
  }
  std::string call(uint64_t lease, uint32_t turn, const std::string& command) {
    const auto answer = ask([&](wire::Body::Builder body) {
      auto in = body.initCall();
      in.setLease(lease);
      in.setTurn(turn);
      auto calls = in.initCalls(1);
      calls[0].setName("run_terminal_cmd");
      calls[0].setArguments(dump_json({{"command", command}}));
    });
    if (!answer || !answer->body().isCalled()) return "failed";
    return answer->body().getCalled().getResults()[0].cStr();
  }
  // How the environment says that it worked, with its grade.
  Behaviour behaviour(uint64_t lease) {
    const auto answer = ask([&](wire::Body::Builder body) { body.initScore().setLease(lease); });
    if (!answer || !answer->body().isScored()) return {};
    const auto json = parse_json(answer->body().getScored().getBehaviour().cStr());
    const auto counted = json ? behaviour_from_json(*json) : fail(json.error());
    EXPECT_TRUE(counted);
    return counted ? *counted : Behaviour();
  }
  void release(uint64_t lease) {
    wire::Outgoing message;
    message.body().setRelease(lease);
    EXPECT_TRUE(client_->send("", message).ok());
  }

  const std::string address_ = "ipc:///tmp/tandem-branches-" + std::to_string(getpid());
  const SystemClock clock_;
  StopFlags stop_;
  zmq::context_t context_;
  std::optional<wire::Socket> client_;
  std::thread server_;
  uint64_t last_ = 0;
  std::string why_;
};

TEST_F(ServerBranches, go_on_from_the_files_of_the_trunk_and_not_from_each_other) {
  const uint64_t trunk = acquire(1);
  ASSERT_NE(trunk, 0u);
  const std::string said = call(trunk, 1, "echo of the trunk > new.txt; date +%N");
  const uint64_t branch = acquire(2, trunk, 1), other = acquire(3, trunk, 1);
  ASSERT_NE(branch, 0u) << why_;
  ASSERT_NE(other, 0u) << why_;
  EXPECT_EQ(acquire(2, trunk, 1), branch) << "the same, asked for again";
  // The turn of the trunk is answered as there, and not run again.
  EXPECT_EQ(call(branch, 1, "echo of the trunk > new.txt; date +%N"), said);
  EXPECT_EQ(call(trunk, 1, "echo of the trunk > new.txt; date +%N"), said);
  EXPECT_EQ(call(branch, 2, "cat new.txt; echo of a branch > new.txt"), "of the trunk\n");
  EXPECT_EQ(call(other, 2, "cat new.txt"), "of the trunk\n");
  EXPECT_EQ(call(trunk, 2, "cat new.txt"), "of the trunk\n");
  EXPECT_EQ(call(branch, 3, "cat new.txt"), "of a branch\n");
}

TEST_F(ServerBranches, count_what_their_trunk_did_and_a_turn_that_is_asked_for_again_once) {
  const uint64_t trunk = acquire(1);
  ASSERT_NE(trunk, 0u);
  call(trunk, 1, "echo one > new.txt");
  const uint64_t branch = acquire(2, trunk, 1);
  ASSERT_NE(branch, 0u) << why_;
  call(branch, 1, "echo one > new.txt");
  call(branch, 2, "echo two > new.txt");
  call(branch, 2, "echo two > new.txt");
  const Behaviour of_branch = behaviour(branch), of_trunk = behaviour(trunk);
  EXPECT_EQ(of_branch.turns, 2);
  EXPECT_EQ(of_branch.edits, 2);
  EXPECT_GT(of_branch.seconds, 0);
  EXPECT_EQ(of_trunk.turns, 1);
  EXPECT_EQ(behaviour(trunk), of_trunk) << "asked for again";
}

TEST_F(ServerBranches, of_a_trunk_that_is_not_there_or_is_elsewhere_are_refused) {
  const uint64_t trunk = acquire(1);
  ASSERT_NE(trunk, 0u);
  call(trunk, 1, "true");
  EXPECT_EQ(acquire(2, trunk, 2), 0u);
  EXPECT_NE(why_.find("not behind its turn 2"), std::string::npos) << why_;
  call(trunk, 2, "true");
  EXPECT_EQ(acquire(2, trunk, 1), 0u);
  release(trunk);
  EXPECT_EQ(acquire(2, trunk, 2), 0u);
  EXPECT_NE(why_.find("no lease"), std::string::npos) << why_;
  // The attempt begins as the task says, and does not get what was meant to be a branch.
  EXPECT_NE(acquire(2), 0u) << why_;
}

}  // namespace
}  // namespace tandem::envs
