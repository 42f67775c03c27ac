// A server of many runs, over the real socket, with real sandboxes.
#include <gmock/gmock.h>

#include <thread>

#include "envs/server/server.h"
#include "tests/envs/sandbox_fixture.h"
#include "wire/ask.h"

namespace tandem::envs {
namespace {

using testing::HasSubstr;

constexpr double kPatience = 20;

// What a rollout of one run asks of the host.
class RunClient {
 public:
  RunClient(const std::string& address, uint64_t run, std::string run_dir)
      : run_dir_(std::move(run_dir)),
        socket_(*wire::Socket::connect(context_, address,
                                       {.sender = std::to_string(run) + "/rollout-0", .epoch = 1, .run = run})) {}

  Result<wire::Incoming> ask(const std::function<void(wire::Body::Builder)>& write) {
    return wire::ask(socket_, ++last_, write, kPatience);
  }
  // The lease.
  Result<uint64_t> acquire(uint64_t episode) {
    const auto answer = TRY(ask([&](wire::Body::Builder body) {
      auto in = body.initAcquire();
      in.setEpisode(episode);
      in.setKind("count");
      in.setSplit("train");
      in.setSeed(episode);
      in.setRunDir(run_dir_);
    }));
    return answer.body().getAcquired().getLease();
  }
  Result<std::string> call(uint64_t lease, const std::string& command) {
    const auto answer = TRY(ask([&](wire::Body::Builder body) {
      auto in = body.initCall();
      in.setLease(lease);
      in.setTurn(++turn_);
      auto call = in.initCalls(1)[0];
      call.setName("run_terminal_cmd");
      call.setArguments(dump_json(Json{{"command", command}}));
    }));
    return std::string(answer.body().getCalled().getResults()[0]);
  }
  void release(uint64_t lease) {
    wire::Outgoing message;
    message.body().setRelease(lease);
    EXPECT_TRUE(socket_.send("", message));
  }

 private:
  const std::string run_dir_;
  zmq::context_t context_;
  wire::Socket socket_;
  uint64_t last_ = 0;
  uint32_t turn_ = 0;
};

class EnvHost : public SandboxTest {
 protected:
  void start(size_t most_episodes, size_t most_of_a_run) {
    ServerSettings settings{.address = "tcp://127.0.0.1:*",
                            .identity = {.sender = "env@here", .epoch = 1, .run = wire::kEveryRun},
                            .open_run = [this](uint64_t run, const std::string& run_dir) -> Result<RunTerms> {
                              ++opened_;
                              if (run_dir != "/runs/" + std::to_string(run))
                                return fail(Status::invalid("the run is not the one of " + run_dir));
                              return RunTerms{.name = std::to_string(run), .episode = {.output_limit = 2000 / run}};
                            },
                            .most_episodes = most_episodes,
                            .most_episodes_of_a_run = most_of_a_run};
    std::atomic<bool> listens{false};
    thread_ = std::thread([this, settings, &listens] {
      const auto served = serve(
          settings, *backend_, clock_, stop_, [](const std::string&, const ServerCounters&) {},
          [&](const std::string& address) {
            address_ = address;
            listens = true;
            listens.notify_all();
          });
      EXPECT_TRUE(served) << served.to_string();
      ended_ = true;
    });
    listens.wait(false);
  }
  void TearDown() override {
    stop_.now = true;
    if (thread_.joinable()) thread_.join();
  }
  RunClient run(uint64_t number) { return {address_, number, "/runs/" + std::to_string(number)}; }

  const SystemClock clock_{};
  StopFlags stop_;
  std::string address_;
  std::atomic<int> opened_{0};
  std::atomic<bool> ended_{false};
  std::thread thread_;
};

TEST_F(EnvHost, runs_have_their_own_terms_and_no_way_to_each_others_episodes) {
  start(8, 8);
  auto first = run(1), second = run(2);
  const auto lease = first.acquire(5), other = second.acquire(5);
  ASSERT_TRUE(lease && other) << lease.error().to_string();
  ASSERT_TRUE(first.acquire(6));
  EXPECT_EQ(opened_, 2) << "each run is opened once";
  const auto shown = first.call(*lease, "yes | head -c 5000");
  const auto shorter = second.call(*other, "yes | head -c 5000");
  ASSERT_TRUE(shown && shorter);
  EXPECT_GT(shown->size(), 1900u);
  EXPECT_LT(shorter->size(), 1500u);

  EXPECT_EQ(second.call(*lease, "true").error().code(), Code::kNotFound);
  second.release(*lease);
  EXPECT_TRUE(first.call(*lease, "true")) << "nobody else can let go of it";
}

TEST_F(EnvHost, a_run_that_is_over_has_nothing_left_there_and_takes_nothing_of_another) {
  start(8, 8);
  auto first = run(1), second = run(2);
  const auto lease = first.acquire(5), other = second.acquire(5);
  ASSERT_TRUE(lease && other);
  ASSERT_TRUE(first.ask([](wire::Body::Builder body) { body.setCloseRun(); }));
  EXPECT_EQ(first.call(*lease, "true").error().code(), Code::kNotFound);
  EXPECT_TRUE(second.call(*other, "true"));
  EXPECT_TRUE(first.acquire(5)) << "it may go on";
  EXPECT_EQ(opened_, 3);
}

// Its supervisor was killed, so nobody closed it.
TEST_F(EnvHost, a_run_that_begins_again_is_read_again_and_has_nothing_of_its_former_life) {
  start(8, 8);
  auto client = run(1);
  const auto lease = client.acquire(5);
  ASSERT_TRUE(lease);
  ASSERT_TRUE(client.ask([](wire::Body::Builder body) { body.setOpenRun("/runs/1"); }));
  EXPECT_EQ(opened_, 2);
  EXPECT_EQ(client.call(*lease, "true").error().code(), Code::kNotFound);
}

TEST_F(EnvHost, a_run_that_cannot_be_opened_is_told_why_each_time) {
  start(8, 8);
  RunClient stranger(address_, 3, "/runs/4");
  for (int i = 0; i < 2; ++i) {
    const auto lease = stranger.acquire(1);
    ASSERT_FALSE(lease);
    EXPECT_THAT(lease.error().message(), HasSubstr("the run is not the one of /runs/4"));
  }
  EXPECT_EQ(opened_, 2);
  const auto asked = stranger.ask([](wire::Body::Builder body) { body.setOpenRun("/runs/3"); });
  ASSERT_TRUE(asked) << asked.error().to_string();
  EXPECT_TRUE(asked->body().isWelcome());
}

TEST_F(EnvHost, no_run_has_more_episodes_than_its_share_and_none_where_all_are_taken) {
  start(3, 2);
  auto first = run(1), second = run(2);
  const auto lease = first.acquire(1);
  ASSERT_TRUE(lease && first.acquire(2));
  EXPECT_TRUE(first.acquire(1)) << "asked again it is the same one";
  const auto third = first.acquire(3);
  ASSERT_FALSE(third);
  EXPECT_EQ(third.error().code(), Code::kExhausted);
  EXPECT_THAT(third.error().message(), HasSubstr("the run has its 2 episodes here"));
  ASSERT_TRUE(second.acquire(1));
  const auto full = second.acquire(2);
  ASSERT_FALSE(full);
  EXPECT_THAT(full.error().message(), HasSubstr("the environment server has its 3 episodes"));
  first.release(*lease);
  EXPECT_TRUE(within(30s, [&] { return second.acquire(2).has_value(); }));
}

TEST_F(EnvHost, one_that_drains_ends_with_its_last_episode) {
  start(8, 8);
  auto client = run(1);
  const auto lease = client.acquire(1);
  ASSERT_TRUE(lease);
  stop_.drain = true;
  // From the moment on in which it has seen that.
  ASSERT_TRUE(within(30s, [&] {
    const auto late = client.acquire(2);
    if (late) client.release(*late);
    return !late && late.error().code() == Code::kExhausted;
  }));
  EXPECT_TRUE(client.call(*lease, "true"));
  EXPECT_FALSE(ended_);
  client.release(*lease);
  EXPECT_TRUE(within(30s, [&] { return ended_.load(); }));
}

}  // namespace
}  // namespace tandem::envs
