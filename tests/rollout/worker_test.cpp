// A worker as a thread of this test, over real sockets; the test is its coordinator, trainer, environment and peer.
#include "rollout/worker.h"

#include <gtest/gtest.h>

#include <functional>
#include <thread>

#include "envs/episodes/call_messages.h"
#include "model/weights.h"
#include "rollout/books/lease.h"
#include "rollout/handover.h"
#include "weights_sync/carrier.h"

namespace tandem::rollout {
namespace {

using namespace std::chrono_literals;
using wire::Body;

constexpr const char* kModel = TANDEM_SOURCE_DIR "/tests/golden/sft/model";

class WorkerTest : public testing::Test {
 protected:
  WorkerTest() {
    const auto model = model::load_weights(kModel, false);
    weights_.assign(model->wire().begin(), model->wire().end());
    blocks_ = weights_sync::Blocks::of(*model);
    thread_ = std::thread([this] {
      WorkerSettings settings{.identity = identity("rollout-0"),
                              .directory = directory(),
                              .env_secret = {},
                              .address = "tcp://127.0.0.1:*",
                              .model = kModel};
      settings.engine = {.slots = 2, .max_tokens = 128};
      ended_ = run_worker(settings, clock_, stop_);
    });
  }
  ~WorkerTest() override {
    stop_ = true;
    thread_.join();
    EXPECT_TRUE(ended_) << ended_.message();
  }

  static wire::Identity identity(const char* sender) { return {.sender = sender, .epoch = 1, .run = 7}; }
  wire::Directory directory() const {
    wire::Directory directory;
    for (const auto& [role, socket] : {std::pair(wire::Role::kCoordinator, &coordinator_),
                                       std::pair(wire::Role::kTrainer, &trainer_), std::pair(wire::Role::kEnv, &env_)})
      EXPECT_TRUE(directory.put({role, 0}, {.address = *wire::Address::parse(socket->address()), .host = "local"}));
    return directory;
  }
  wire::Socket listen(const char* sender) {
    return std::move(*wire::Socket::listen(context_, "tcp://127.0.0.1:*", identity(sender)));
  }

  // The next message that `wanted` takes, of those that the worker sends anywhere; none within half a minute fails.
  // The trainer's are answered on the way: it has the weights of `version_`.
  std::optional<wire::Incoming> await(const std::function<bool(Body::Reader)>& wanted) {
    const Time deadline = clock_.now() + 30s;
    while (clock_.now() < deadline) {
      wire::Socket* const sockets[] = {&coordinator_, &trainer_, &env_};
      wire::wait(sockets, 50ms);
      while (auto message = trainer_.receive()) serve_weights(*message);
      for (wire::Socket* socket : {&coordinator_, &env_}) {
        while (auto message = socket->receive()) {
          if (wanted(message->body())) return message;
        }
      }
    }
    ADD_FAILURE() << "the worker did not send it";
    return std::nullopt;
  }

  void serve_weights(const wire::Incoming& message) {
    if (version_ == 0) return;
    if (handout_.listeners().empty()) {
      kernels::ThreadPool threads(1);
      weights_sync::History history(*blocks_, "bf16", {});
      handout_.offer(history.add(version_, weights_, threads));
    }
    (void)weights_sync::answer(handout_, trainer_, message, clock_.now());
  }

  void welcome() {
    hello_ = await([](Body::Reader body) { return body.isHello(); });
    ASSERT_TRUE(hello_);
    wire::Outgoing welcome(1);
    welcome.body().initWelcome();
    ASSERT_TRUE(coordinator_.send("rollout-0", welcome));
  }

  static constexpr RouteShape kRoutes{.layers = 2, .top_k = 1, .experts = 4};

  // Episode 5 comes from another rollout, in the middle of a call, with sandbox 9; it needs weights 3.
  void take_over() {
    welcome();
    Handover episode;
    episode.lease = {
        .key = {.episode = 5, .attempt = 1}, .kind = "echo", .split = "train", .min_version = 3, .max_version = 3};
    episode.trajectory.key = episode.lease.key;
    episode.trajectory.routes.shape = kRoutes;
    episode.trajectory.kept.vocabulary = 100;
    const std::vector<int32_t> prompt = {1, 40, 41};
    episode.trajectory.append(prompt);
    episode.trajectory.append_sampled(42, -1.5f, 3, std::vector<int32_t>{40, 42, 99});
    episode.trajectory.append_routes(0, std::vector<uint8_t>{0, 1, 2, 3, 1, 0});
    episode.sandbox = 9;
    episode.turns = 1;
    episode.max_turns = 4;
    episode.said.calls.push_back({.call = {.name = "look", .arguments = {{"at", 1}}}});
    auto victim = wire::Socket::connect(context_, hello_->body().getHello().getAddress(), identity("rollout-1"));
    ASSERT_TRUE(victim);
    const auto hand_over = [&] {
      wire::Outgoing handover;
      write_handover(episode, handover);
      return victim->send("", handover).ok();
    };
    // Taken as soon as the connection stands.
    const Time deadline = clock_.now() + 30s;
    while (!hand_over() && clock_.now() < deadline) std::this_thread::sleep_for(1ms);
    ASSERT_TRUE(await([](Body::Reader body) { return body.isClaim() && body.getClaim().getEpisode() == 5; }));
    wire::Outgoing yours;
    write_claim({.episode = 5, .attempt = 1}, 1, yours.body().initClaim());
    ASSERT_TRUE(coordinator_.send("rollout-0", yours));
  }

  // The worker is asked to hand an episode over, until one has come.
  std::optional<wire::Incoming> steal(wire::Socket& thief) {
    for (const Time deadline = clock_.now() + 30s; clock_.now() < deadline;) {
      wire::Outgoing steal;  // again, until there is a connection to the thief
      steal.body().initSteal().setCount(1);
      steal.body().getSteal().setThief(thief.address());
      EXPECT_TRUE(coordinator_.send("rollout-0", steal));
      wire::Socket* const sockets[] = {&thief};
      wire::wait(sockets, 50ms);
      if (auto message = thief.receive()) return message;
    }
    return std::nullopt;
  }

  void tell_of_sandbox(const std::string& worker, uint64_t episode, uint64_t sandbox) {
    wire::Outgoing acquired;
    auto out = acquired.body().initAcquired();
    out.setLease(sandbox);
    out.setEpisode(episode);
    out.setAttempt(1);
    EXPECT_TRUE(env_.send(worker, acquired));
  }

  const SystemClock clock_{};
  zmq::context_t context_;
  wire::Socket coordinator_ = listen("coordinator-0"), trainer_ = listen("trainer-0"), env_ = listen("env-0");
  std::vector<std::byte> weights_;
  std::optional<weights_sync::Blocks> blocks_;  // of these
  weights_sync::Handout handout_;
  uint64_t version_ = 0;
  std::atomic<bool> stop_{false};
  Status ended_;
  std::optional<wire::Incoming> hello_;
  std::thread thread_;
};

// It began with weights that the taker, which has just started, does not have yet.
TEST_F(WorkerTest, an_episode_that_was_taken_over_waits_for_the_weights_of_its_lease) {
  take_over();
  const auto waits_or_calls = await([](Body::Reader body) {
    return body.isCall() ||
           (body.isHeartbeat() &&
            std::string_view(body.getHeartbeat().getDoing().cStr()).find("1 for weights") != std::string_view::npos);
  });
  ASSERT_TRUE(waits_or_calls);
  EXPECT_TRUE(waits_or_calls->body().isHeartbeat());

  version_ = 3;
  const auto call = await([](Body::Reader body) { return body.isCall(); });
  ASSERT_TRUE(call);
  EXPECT_EQ(call->body().getCall().getLease(), 9u);
  EXPECT_EQ(call->body().getCall().getTurn(), 1u);
  ASSERT_EQ(call->body().getCall().getCalls().size(), 1u);
  EXPECT_EQ(std::string(call->body().getCall().getCalls()[0].getArguments()), R"({"at":1})");
}

TEST_F(WorkerTest, a_sandbox_that_comes_when_its_episode_is_on_its_way_to_another_rollout_is_let_go) {
  ASSERT_TRUE(await([](Body::Reader body) { return body.isHello(); }));
  wire::Outgoing welcome(1);
  welcome.body().initWelcome();
  ASSERT_TRUE(coordinator_.send("rollout-0", welcome));
  const LeaseTerms lease{.key = {.episode = 5, .attempt = 1}, .kind = "echo", .split = "train"};
  wire::Outgoing grant;
  write_lease(lease, grant.body().initGrant().initLeases(1)[0]);
  ASSERT_TRUE(coordinator_.send("rollout-0", grant));
  const auto asked = await([](Body::Reader body) { return body.isAcquire(); });
  ASSERT_TRUE(asked);

  wire::Socket thief = listen("rollout-1");
  const auto handed_over = steal(thief);
  ASSERT_TRUE(handed_over && handed_over->body().isHandover());
  wire::Outgoing acquired(asked->id());
  auto out = acquired.body().initAcquired();
  out.setLease(9);
  out.setEpisode(5);
  out.setAttempt(1);
  ASSERT_TRUE(env_.send(asked->sender(), acquired));
  EXPECT_TRUE(await([](Body::Reader body) { return body.isRelease() && body.getRelease() == 9; }));
}

// The server was asked twice for it, and its second answer is late.
TEST_F(WorkerTest, a_sandbox_that_went_to_another_rollout_is_not_let_go_when_it_is_told_of_again) {
  take_over();
  wire::Socket thief = listen("rollout-1-as-thief");
  const auto handed_over = steal(thief);
  ASSERT_TRUE(handed_over && handed_over->body().isHandover());
  ASSERT_EQ(handed_over->body().getHandover().getEnvLease(), 9u);
  const auto handover = read_handover(*handed_over);
  ASSERT_TRUE(handover) << handover.error().to_string();
  EXPECT_EQ(handover->trajectory.routes.shape, kRoutes);
  EXPECT_EQ(handover->trajectory.routes.recorded, (std::vector<uint8_t>{1, 1, 1, 0}));
  EXPECT_EQ(handover->trajectory.routes.ids, (std::vector<uint8_t>{0, 1, 2, 3, 1, 0, 0, 0}));
  EXPECT_EQ(handover->trajectory.kept.vocabulary, 100u);
  EXPECT_EQ(handover->trajectory.kept.counts, (std::vector<uint32_t>{0, 0, 0, 3}));
  EXPECT_EQ(handover->trajectory.kept.ids, (std::vector<int32_t>{40, 42, 99}));
  wire::Outgoing gone;
  write_claim({.episode = 5, .attempt = 1}, 2, gone.body().initClaimed());
  ASSERT_TRUE(coordinator_.send("rollout-0", gone));
  ASSERT_TRUE(await([](Body::Reader body) {
    return body.isHeartbeat() && std::string_view(body.getHeartbeat().getDoing().cStr()) == "waiting for episodes";
  }));
  const std::string worker = "0000000000000007/rollout-0";  // as environment servers know it
  tell_of_sandbox(worker, 5, 9);
  tell_of_sandbox(worker, 7, 11);  // of nobody
  const auto released = await([](Body::Reader body) { return body.isRelease(); });
  ASSERT_TRUE(released);
  EXPECT_EQ(released->body().getRelease(), 11u);
}

// slime 2261, verl 7207: what goes on elsewhere had a whole turn before it again, or nothing.
TEST(HandedOverTurns, have_the_tokens_left_that_were_not_said) {
  const TurnRequest turn{.max_new_tokens = 40, .seed = 9, .stop_tokens = {3}};
  EXPECT_EQ(rest_of_turn(turn, 0).max_new_tokens, 40);
  EXPECT_EQ(rest_of_turn(turn, 39).max_new_tokens, 1);
  const TurnRequest rest = rest_of_turn(turn, 15);
  EXPECT_EQ(rest.max_new_tokens, 25);
  EXPECT_EQ(rest.seed, 9u);
  EXPECT_EQ(rest.stop_tokens, turn.stop_tokens);
}

// Its turn was then "played with other calls": the server compares what it is asked with what it was asked before.
TEST(HandedOverCalls, that_could_not_be_read_are_asked_for_in_the_same_words_as_before) {
  const std::vector<envs::ParsedCall> calls = {
      {.call = {.name = "look", .arguments = {{"at", 1}, {"x", 0.1}, {"y", 1e300}}}, .id = "call_1"},
      {.call = {.name = "read"}, .error = "the arguments are not JSON"},
      {.call = {.name = "read", .arguments = {{"half", "read"}}}, .error = "an end is missing"}};
  const auto request_of = [](const std::vector<envs::ParsedCall>& said, std::vector<envs::ParsedCall>& read) {
    wire::Outgoing message;
    auto out = message.body().initCall().initCalls(static_cast<unsigned>(said.size()));
    envs::write_calls(said, out);
    read = *envs::read_calls(out.asReader());
    const auto text = message.body().getCall().asReader().toString().flatten();
    return std::string(text.cStr(), text.size());
  };
  std::vector<envs::ParsedCall> once, twice;
  const auto before = request_of(calls, once);
  EXPECT_EQ(request_of(once, twice), before);
  EXPECT_EQ(twice, once);
}

}  // namespace
}  // namespace tandem::rollout
