// A relay over real sockets: the test is the trainer, the coordinator, and the rollouts below.
#include "rollout/relay.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstring>
#include <list>
#include <set>
#include <thread>
#include <tuple>

#include "model/weights.h"
#include "rollout/weights_source.h"

namespace tandem::rollout {
namespace {

using namespace std::chrono_literals;
using weights_sync::Blocks;
using weights_sync::Held;

constexpr const char* kRelayedModel = TANDEM_SOURCE_DIR "/tests/golden/sft/model";
constexpr wire::Peer kRelay{wire::Role::kRelay, 0};

class RelayTest : public testing::Test {
 protected:
  using Bytes = std::vector<std::byte>;

  // A rollout without an engine.
  struct Below {
    std::unique_ptr<WeightsFeed> feed;
    wire::Socket trainer;
    std::unique_ptr<WeightsSource> source;
    uint64_t ready = 0, bytes = 0;
  };

  static wire::Identity identity(const std::string& sender, uint64_t epoch = 1) {
    return {.sender = sender, .epoch = epoch, .run = 7};
  }
  static wire::Address address_of(const wire::Socket& socket) { return *wire::Address::parse(socket.address()); }

  RelayTest() {
    history_.add(0, bytes_, threads_);
    publish();
  }
  ~RelayTest() override { stop_relay(); }

  // Another version: some bf16 of every part one up.
  void publish() {
    for (const auto& block : blocks_.all()) {
      for (uint32_t i = 0; i < block.elements; i += 97) {
        uint16_t code = 0;
        std::memcpy(&code, &bytes_[block.begin + i * 2], 2);
        ++code;
        std::memcpy(&bytes_[block.begin + i * 2], &code, 2);
      }
    }
    offered_ = history_.add(++version_, bytes_, threads_);
    handout_.offer(offered_);
    weights_sync::announce(handout_, trainer_);
  }

  // One life of relay-0.
  void start_relay() {
    wire::Directory directory;
    ASSERT_TRUE(directory.put({wire::Role::kCoordinator, 0},
                              {.address = address_of(coordinator_), .host = "local", .epoch = 0}));
    ASSERT_TRUE(
        directory.put({wire::Role::kTrainer, 0}, {.address = address_of(trainer_), .host = "local", .epoch = 0}));
    stop_ = false;
    relay_address_.clear();
    relay_ = std::thread([this, directory, epoch = ++epoch_] {
      relay_ended_ = run_relay({.identity = identity("relay-0", epoch),
                                .directory = directory,
                                .secret = {},
                                .address = "tcp://127.0.0.1:*",
                                .model = kRelayedModel,
                                .threads = 2},
                               clock_, stop_);
    });
    ASSERT_TRUE(serve([&] { return !relay_address_.empty(); }));
    for (Below& below : below_) follow(below, *wire::Address::parse(relay_address_));
  }
  void stop_relay() {
    stop_ = true;
    if (relay_.joinable()) relay_.join();
  }

  Below& add_below(Duration patience = 60s) {
    Held held(blocks_, "bf16");
    held.hold(0, source_.wire(), threads_);
    const std::string name = "rollout-" + std::to_string(below_.size());
    auto feed = std::make_unique<WeightsFeed>(std::move(held), 4, 1, clock_, nullptr);
    auto trainer = std::move(*wire::Socket::connect(context_, trainer_.address(), identity(name)));
    auto source = std::make_unique<WeightsSource>(*feed, kRelay, patience, clock_, [this, name](const auto& address) {
      return wire::Socket::connect(context_, address.text(), identity(name));
    });
    Below& below = below_.emplace_back(Below{std::move(feed), std::move(trainer), std::move(source)});
    if (!relay_address_.empty()) follow(below, *wire::Address::parse(relay_address_));
    return below;
  }
  static void follow(Below& below, const wire::Address& relay) {
    wire::Directory directory;
    ASSERT_TRUE(directory.put(kRelay, {.address = relay, .host = "local", .epoch = 0}));
    const Status followed = below.source->follow(directory);
    ASSERT_TRUE(followed) << followed.to_string();
  }

  // Turns all loops until `done`; false where that did not come within half a minute.
  bool serve(const std::function<bool()>& done) {
    for (const Time deadline = clock_.now() + 30s; clock_.now() < deadline;) {
      std::vector<wire::Socket*> sockets = {&trainer_, &coordinator_};
      if (stand_in_) sockets.push_back(&*stand_in_);
      for (Below& below : below_) {
        sockets.push_back(&below.trainer);
        below.source->add_sockets(sockets);
      }
      wire::wait(sockets, 5ms);
      while (auto message = coordinator_.receive()) on_coordinator(*message);
      while (auto message = trainer_.receive()) {
        if (!answered_otherwise_ || !answered_otherwise_(*message))
          sent_ += weights_sync::answer(handout_, trainer_, *message, clock_.now()).value_or(0);
      }
      while (stand_in_) {
        auto message = stand_in_->receive();
        if (!message) break;
        on_stand_in_(*message);
      }
      for (Below& below : below_) turn(below);
      if (done()) return true;
    }
    return false;
  }
  bool all_are_at(uint64_t version) {
    return serve([&] { return std::ranges::all_of(below_, [&](const Below& b) { return b.ready >= version; }); });
  }
  void turn(Below& below) {
    while (auto message = below.trainer.receive()) below.source->on_trainer(*message);
    below.source->receive();
    below.source->tick(below.trainer);
    auto ready = below.feed->take_ready();
    EXPECT_TRUE(ready.has_value());
    if (!ready || !*ready) return;
    below.ready = (*ready)->version;
    below.bytes += (*ready)->bytes;
    if (below.ready == version_) {
      EXPECT_TRUE(std::ranges::equal(below.feed->held().bytes(), bytes_)) << "version " << version_;
      EXPECT_EQ(below.feed->held().holds().digest, weights_sync::digest_of_parts(offered_->whole().parts));
    }
  }
  void on_coordinator(const wire::Incoming& message) {
    const auto body = message.body();
    if (body.isHello() && message.epoch() == epoch_) {
      EXPECT_STREQ(body.getHello().getRole().cStr(), "relay");
      relay_address_ = body.getHello().getAddress();
      wire::Outgoing welcome(1);
      welcome.body().initWelcome();
      (void)coordinator_.send(message.sender(), welcome);
    }
    if (body.isHeartbeat()) metrics_ = *parse_json(std::string_view(body.getHeartbeat().getMetrics().cStr()));
  }

  SystemClock clock_;
  kernels::ThreadPool threads_{2};
  model::Weights source_ = std::move(*model::load_weights(kRelayedModel, false));
  Bytes bytes_{source_.wire().begin(), source_.wire().end()};
  const Blocks blocks_ = Blocks::of(source_);
  weights_sync::History history_{blocks_, "bf16", {}};
  weights_sync::Handout handout_;
  std::shared_ptr<const weights_sync::Offer> offered_;
  uint64_t version_ = 0, epoch_ = 0;
  zmq::context_t context_;
  wire::Socket trainer_ = std::move(*wire::Socket::listen(context_, "tcp://127.0.0.1:*", identity("trainer-0")));
  wire::Socket coordinator_ =
      std::move(*wire::Socket::listen(context_, "tcp://127.0.0.1:*", identity("coordinator-0")));
  std::function<bool(const wire::Incoming&)> answered_otherwise_;
  std::optional<wire::Socket> stand_in_;  // for a relay, by the test
  std::function<void(const wire::Incoming&)> on_stand_in_;
  std::list<Below> below_;
  size_t sent_ = 0;
  std::string relay_address_;
  Json metrics_;
  std::atomic<bool> stop_{false};
  Status relay_ended_;
  std::thread relay_;
};

TEST_F(RelayTest, a_version_is_sent_to_the_relay_once_and_by_it_to_all_below_as_what_changed) {
  // The line damages each chunk once.
  std::set<std::tuple<uint64_t, uint64_t, uint32_t>> damaged;
  answered_otherwise_ = [&](const wire::Incoming& message) {
    if (!message.body().isChunkRequest()) return false;
    EXPECT_EQ(message.sender(), "relay-0");
    const auto request = message.body().getChunkRequest();
    if (!damaged.insert({request.getBase(), request.getVersion(), request.getIndex()}).second) return false;
    const auto chunk = *handout_.chunk(request.getBase(), request.getVersion(), request.getIndex(), clock_.now());
    Bytes other(chunk.begin(), chunk.end());
    other[other.size() / 2] ^= std::byte{1};
    wire::Outgoing answer(message.id());
    auto out = answer.body().initChunk();
    out.setVersion(request.getVersion());
    out.setIndex(request.getIndex());
    out.setBase(request.getBase());
    answer.add_bulk(other);
    (void)trainer_.send(message.sender(), answer);
    return true;
  };
  start_relay();
  for (int i = 0; i < 3; ++i) add_below();
  ASSERT_TRUE(all_are_at(1));
  size_t deltas = offered_->delta_bytes();
  EXPECT_EQ(sent_, deltas) << "one sending for three receivers";
  while (version_ < 4) {
    publish();
    deltas += offered_->delta_bytes();
    ASSERT_TRUE(all_are_at(version_));
  }
  EXPECT_EQ(sent_, deltas);
  EXPECT_LT(sent_, blocks_.bytes());
  for (const Below& below : below_) {
    EXPECT_EQ(below.bytes, deltas) << "the relay's deltas are the trainer's";
    EXPECT_EQ(below.source->relay_failures(), 0u);
  }
  ASSERT_TRUE(serve([&] { return metrics_.value("sent_bytes", uint64_t{0}) == 3 * deltas; })) << metrics_.dump();
  EXPECT_EQ(metrics_["version"], 4);
  EXPECT_EQ(metrics_["listeners"], 3);
  EXPECT_EQ(metrics_["received_bytes"], deltas);
  EXPECT_EQ(metrics_["refused_chunks"], damaged.size());
  EXPECT_EQ(metrics_["refused_versions"], 0);
  stop_relay();
  EXPECT_TRUE(relay_ended_) << relay_ended_.to_string();
}

// The trainer takes a part's digest of other bytes than it sends: what the relay got is not what was published.
TEST_F(RelayTest, what_is_not_the_trainers_by_the_digest_of_a_part_is_not_served) {
  bool has_lied = false;
  answered_otherwise_ = [&](const wire::Incoming& message) {
    if (!message.body().isWeightsWanted() || has_lied) return false;
    has_lied = true;
    handout_.wants(message.sender(), weights_sync::read_wanted(message.body().getWeightsWanted()));
    auto manifest = *handout_.next_for(message.sender());
    manifest.parts.back().low ^= 1;
    wire::Outgoing answer;
    weights_sync::write_manifest(manifest, answer.body().initWeightsManifest());
    (void)trainer_.send(message.sender(), answer);
    return true;
  };
  start_relay();
  Below& below = add_below();
  ASSERT_TRUE(all_are_at(1));
  ASSERT_TRUE(serve([&] { return metrics_.value("version", 0) == 1; }));
  EXPECT_EQ(metrics_["refused_versions"], 1);
  EXPECT_EQ(below.feed->refused_versions(), 0u);
  EXPECT_EQ(below.source->relay_failures(), 0u);
}

TEST_F(RelayTest, one_that_is_started_again_begins_from_nothing_and_serves_on) {
  start_relay();
  Below& below = add_below(1s);
  ASSERT_TRUE(all_are_at(1));
  stop_relay();
  publish();
  ASSERT_TRUE(all_are_at(2)) << "of the trainer";
  EXPECT_EQ(below.source->relay_failures(), 1u);
  EXPECT_FALSE(below.source->asks_relay());
  start_relay();
  Below& late = add_below();
  ASSERT_TRUE(all_are_at(2));
  EXPECT_EQ(late.source->relay_failures(), 0u);
  publish();
  ASSERT_TRUE(all_are_at(3));
  EXPECT_TRUE(late.source->asks_relay());
}

// The relay is the test: it offers a version, and is gone when its chunks are asked for.
TEST_F(RelayTest, a_relay_that_is_lost_between_manifest_and_chunk_is_replaced_by_the_trainer) {
  stand_in_.emplace(std::move(*wire::Socket::listen(context_, "tcp://127.0.0.1:*", identity("relay-0"))));
  int asked = 0;
  weights_sync::Handout offers = handout_;
  on_stand_in_ = [&](const wire::Incoming& message) {
    if (message.body().isChunkRequest()) ++asked;
    if (message.body().isWeightsWanted()) (void)weights_sync::answer(offers, *stand_in_, message, clock_.now());
  };
  relay_address_ = stand_in_->address();
  Below& below = add_below(1s);
  const Time begun = clock_.now();
  ASSERT_TRUE(all_are_at(1));
  EXPECT_GE(clock_.now() - begun, 1s);
  EXPECT_GT(asked, 0);
  EXPECT_EQ(below.source->relay_failures(), 1u);
  EXPECT_FALSE(below.source->asks_relay());
  publish();
  ASSERT_TRUE(all_are_at(2)) << "the relay is left alone";
}

// It is there, and says nothing of a version that the rollout's leases ask for.
TEST_F(RelayTest, a_relay_that_is_cut_off_from_the_trainer_is_replaced_by_it) {
  stand_in_.emplace(std::move(*wire::Socket::listen(context_, "tcp://127.0.0.1:*", identity("relay-0"))));
  on_stand_in_ = [&](const wire::Incoming& message) {
    if (!message.body().isWeightsWanted()) return;
    wire::Outgoing nothing;
    nothing.body().initWeightsManifest();
    (void)stand_in_->send(message.sender(), nothing);
  };
  relay_address_ = stand_in_->address();
  Below& below = add_below(2s);
  const Time until = clock_.now() + 3s;
  ASSERT_TRUE(serve([&] { return clock_.now() > until; }));
  EXPECT_TRUE(below.source->asks_relay()) << "nobody has said that there is a version";
  below.source->know(1);
  ASSERT_TRUE(all_are_at(1));
  EXPECT_EQ(below.source->relay_failures(), 1u);
}

}  // namespace
}  // namespace tandem::rollout
