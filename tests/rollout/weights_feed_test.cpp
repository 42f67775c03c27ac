// The feed over a real socket; the test is the trainer.
#include "rollout/weights_feed.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <cstring>

#include "base/random.h"
#include "model/executor.h"
#include "model/weights.h"
#include "tests/repetitions.h"
#include "tests/within.h"
#include "weights_sync/carrier.h"
#include "weights_sync/stored_versions.h"

namespace tandem::rollout {
namespace {

using namespace std::chrono_literals;
using weights_sync::Blocks;
using weights_sync::Held;

constexpr const char* kFedModel = TANDEM_SOURCE_DIR "/tests/golden/sft/model";

// Weights of an executor, to whose preparing something happens.
class Watched : public model::StagedWeights {
 public:
  using Before = std::function<Status(std::span<const std::byte>)>;
  Watched(std::unique_ptr<model::StagedWeights> weights, Before before)
      : weights_(std::move(weights)), before_(std::move(before)) {}
  Status prepare(std::span<const std::byte> wire) override {
    TRY(before_(wire));
    return weights_->prepare(wire);
  }
  Status verify(std::span<const std::byte> wire) override { return weights_->verify(wire); }

 private:
  std::unique_ptr<model::StagedWeights> weights_;
  const Before before_;
};

class WeightsFeedTest : public testing::Test {
 protected:
  using Bytes = std::vector<std::byte>;
  static wire::Identity identity(const char* sender) { return {.sender = sender, .epoch = 1, .run = 7}; }

  WeightsFeedTest() {
    for (uint64_t version = 0; version < 3; ++version) publish();
  }

  // Another version: some bf16 of every part one up.
  void publish() {
    if (published_++ > 0) {
      for (const auto& block : blocks_.all()) {
        for (uint32_t i = 0; i < block.elements; i += 97) {
          uint16_t code = 0;
          std::memcpy(&code, &bytes_[block.begin + i * 2], 2);
          ++code;
          std::memcpy(&bytes_[block.begin + i * 2], &code, 2);
        }
      }
    }
    offered_ = history_.add(published_ - 1, bytes_, threads_);
    handout_.offer(offered_);
  }
  std::shared_ptr<const weights_sync::Offer> offered() const { return offered_; }
  uint64_t newest() const { return handout_.offered().newest(); }

  // A feed that holds version 0, or nothing.
  std::unique_ptr<WeightsFeed> feed(bool holds = true, Watched::Before before = nullptr) {
    Held held(blocks_, "bf16");
    if (holds) held.hold(0, source_.wire(), threads_);
    return std::make_unique<WeightsFeed>(std::move(held), 4, 2, clock_,
                                         [this, before]() -> Result<std::unique_ptr<model::StagedWeights>> {
                                           auto staged = TRY(executor_->stage());
                                           if (!before) return staged;
                                           return std::make_unique<Watched>(std::move(staged), before);
                                         });
  }

  // Serves until `done`; false where that did not come within half a minute.
  bool serve(WeightsFeed& feed, const std::function<bool()>& done) {
    for (const Time deadline = clock_.now() + 30s; clock_.now() < deadline;) {
      feed.tick(to_trainer_);
      wire::Socket* const sockets[] = {&trainer_, &to_trainer_};
      wire::wait(sockets, 5ms);
      while (auto message = trainer_.receive()) {
        if (message->body().isWeightsWanted()) ++queries_;
        sent_ += weights_sync::answer(handout_, trainer_, *message, clock_.now()).value_or(0);
      }
      while (auto message = to_trainer_.receive()) {
        if (message->body().isWeightsManifest()) feed.on_manifest(message->body().getWeightsManifest());
        if (message->body().isChunk()) feed.on_chunk(*message);
      }
      if (done()) return true;
    }
    return false;
  }

  // Until the newest version is ready.
  std::optional<WeightsFeed::Ready> take(WeightsFeed& feed) {
    std::optional<WeightsFeed::Ready> ready;
    EXPECT_TRUE(serve(feed, [&] {
      auto taken = feed.take_ready();
      EXPECT_TRUE(taken.has_value());
      if (taken && *taken) ready = std::move(*taken);
      return ready.has_value();
    }));
    if (!ready) return ready;
    EXPECT_EQ(ready->version, newest());
    EXPECT_TRUE(ready->weights->verify(bytes_));
    return ready;
  }

  SystemClock clock_;
  kernels::ThreadPool threads_{2};
  model::Weights source_ = std::move(*model::load_weights(kFedModel, false));
  Bytes bytes_{source_.wire().begin(), source_.wire().end()};
  const Blocks blocks_ = Blocks::of(source_);
  weights_sync::History history_{blocks_, "bf16", {}};
  weights_sync::Handout handout_;
  uint64_t published_ = 0;
  std::shared_ptr<const weights_sync::Offer> offered_;
  std::unique_ptr<model::Executor> executor_ = [] {
    auto stream = std::move(*kernels::Stream::cpu(2));
    auto weights = std::make_shared<model::Weights>(std::move(*model::load_weights(kFedModel, false)));
    EXPECT_TRUE(weights->pack(stream));
    return std::move(*model::make_cpu_executor(weights, std::move(stream), {.pages = 1, .max_positions = 16}));
  }();
  zmq::context_t context_;
  wire::Socket trainer_ = std::move(*wire::Socket::listen(context_, "tcp://127.0.0.1:*", identity("trainer")));
  wire::Socket to_trainer_ = std::move(*wire::Socket::connect(context_, trainer_.address(), identity("rollout-0")));
  int queries_ = 0;
  size_t sent_ = 0;
};

TEST_F(WeightsFeedTest, who_holds_a_version_is_sent_what_changed_since) {
  const auto behind = feed();
  const auto ready = take(*behind);
  ASSERT_TRUE(ready);
  EXPECT_EQ(ready->version, 2u);
  EXPECT_LT(ready->bytes, blocks_.bytes() / 10);
  EXPECT_EQ(ready->bytes, sent_);
  publish();
  const auto next = take(*behind);
  ASSERT_TRUE(next);
  EXPECT_LT(next->bytes, blocks_.bytes() / 10);
}

// Nothing but manifests comes from the trainer where chunks lie in a store; where they do not, or are damaged, it sends
// them, and the store is left alone for a while.
TEST_F(WeightsFeedTest, chunks_are_read_from_a_store_and_sent_by_the_trainer_where_that_fails) {
  const fs::path folder = fs::temp_directory_path() / ("feed-store-" + std::to_string(::getpid()));
  ASSERT_TRUE(make_folder(folder));
  const auto place = [&] { return std::move(*weights_sync::open_store({.place = folder.string()})); };
  {
    weights_sync::StoredVersions versions(place(), {.place = folder.string()},
                                          {.run = 7, .record = folder / "record.json", .deltas = true});
    const auto behind = feed();
    const auto reader = [&](double seconds) {
      behind->read_from(std::make_unique<weights_sync::StoredChunks>(
          place(), weights_sync::StoredChunks::Settings{.run = 7, .deltas = true, .seconds = seconds}, clock_));
    };
    reader(60);
    versions.offer(offered());
    auto ready = take(*behind);
    ASSERT_TRUE(ready);
    EXPECT_EQ(sent_, 0u);
    EXPECT_EQ(behind->stored_bytes(), ready->bytes);
    EXPECT_GT(ready->bytes, 0u);

    publish();  // and not stored
    reader(0.05);
    ASSERT_TRUE(take(*behind));
    EXPECT_GT(sent_, 0u);
    EXPECT_EQ(behind->store_failures(), 1u);

    publish();
    versions.offer(offered());
    const auto stored = versions.counts().objects;
    ASSERT_TRUE(within(30s, [&] { return versions.counts().objects > stored; }));
    for (const auto& entry : fs::recursive_directory_iterator(folder)) {
      if (entry.is_regular_file() && entry.path().filename() != "record.json") {
        EXPECT_TRUE(write_file(entry.path(), "other bytes"));
      }
    }
    reader(60);
    const size_t before = sent_;
    ASSERT_TRUE(take(*behind));
    EXPECT_GT(sent_, before);
    EXPECT_EQ(behind->store_failures(), 1u);
  }
  fs::remove_all(folder);
}

TEST_F(WeightsFeedTest, who_holds_nothing_is_sent_all) {
  const auto empty = feed(false);
  const auto ready = take(*empty);
  ASSERT_TRUE(ready);
  EXPECT_EQ(ready->bytes, blocks_.bytes());
}

TEST_F(WeightsFeedTest, who_was_away_for_many_versions_is_sent_few_deltas) {
  while (newest() < 39) publish();
  const auto behind = feed();
  ASSERT_TRUE(take(*behind));
  // 0 to 32, 36, 38, 39: and the question at the start, between two, and after the last.
  EXPECT_LE(queries_, 5);
  EXPECT_LT(sent_, blocks_.bytes() / 2);
}

TEST_F(WeightsFeedTest, a_version_that_comes_while_one_is_fetched_follows_it) {
  const auto behind = feed();
  ASSERT_TRUE(serve(*behind, [&] { return behind->fetching(); }));
  publish();
  weights_sync::announce(handout_, trainer_);
  ASSERT_TRUE(serve(*behind, [&] {
    const auto ready = behind->take_ready();
    EXPECT_TRUE(ready.has_value());
    return ready && *ready && (*ready)->version == 3;
  }));
}

// It comes back from its checkpoint of a version that is one of two on the way to the newest.
TEST_F(WeightsFeedTest, a_version_on_the_way_is_used_where_the_trainer_goes_back_to_it) {
  const Bytes second = bytes_;
  while (newest() < 3) publish();
  const auto behind = feed();  // 0 to 2, then 3
  ASSERT_TRUE(serve(*behind, [&] {
    const auto taken = behind->take_ready();
    EXPECT_TRUE(taken && !*taken);
    return !behind->fetching() && queries_ >= 1 && sent_ > 0;
  }));
  weights_sync::History again{blocks_, "bf16", {}};
  handout_ = {};
  handout_.offer(again.add(2, second, threads_));
  bytes_ = second;
  ASSERT_TRUE(take(*behind));
}

TEST_F(WeightsFeedTest, bytes_of_the_same_version_of_another_life_of_the_trainer_are_replaced_whole) {
  Held held(blocks_, "bf16");
  Bytes other = bytes_;
  other[100] ^= std::byte{1};
  held.hold(1, other, threads_);
  WeightsFeed feed(std::move(held), 4, 2, clock_, [this] { return executor_->stage(); });
  const auto ready = take(feed);
  ASSERT_TRUE(ready);
  EXPECT_EQ(ready->bytes, blocks_.bytes());
}

TEST_F(WeightsFeedTest, weights_that_could_not_be_prepared_are_not_ready_and_are_fetched_whole) {
  std::atomic<int> tries = 0;
  const auto once = feed(true, [&](std::span<const std::byte> bytes) -> Status {
    EXPECT_TRUE(std::ranges::equal(bytes, bytes_));
    return ++tries == 1 ? Status::exhausted("no memory") : Status();
  });
  std::optional<WeightsFeed::Ready> ready;
  ASSERT_TRUE(serve(*once, [&] {
    auto taken = once->take_ready();
    EXPECT_TRUE(taken.has_value());
    ready = std::move(*taken);
    if (tries == 1 && !once->fetching()) {
      EXPECT_EQ(once->newest(), 0u);
    }
    return ready.has_value();
  }));
  EXPECT_EQ(tries, 2);
  EXPECT_EQ(once->refused_versions(), 1u);
  EXPECT_GE(ready->bytes, blocks_.bytes());
}

TEST_F(WeightsFeedTest, preparing_that_keeps_failing_ends_the_feed_with_its_error) {
  const auto never = feed(true, [](std::span<const std::byte>) { return Status::exhausted("no memory"); });
  Status ended;
  ASSERT_TRUE(serve(*never, [&] {
    const auto taken = never->take_ready();
    if (!taken) ended = taken.error();
    return !taken.has_value();
  }));
  EXPECT_EQ(ended.code(), Code::kExhausted);
}

// A bit that flips on the way, where the bytes wait, after or before they are packed, and one in what was packed: none
// is sampled from, and each is named.
TEST_F(WeightsFeedTest, a_flipped_bit_at_any_place_and_time_is_refused_and_named) {
  Random random(11);
  int refused = 0;
  const int flips = repetitions(200, 1000);
  for (int i = 0; i < flips; ++i) {
    Held held(blocks_, "bf16");
    held.hold(0, source_.wire(), threads_);
    const auto manifest = [&] {
      handout_.wants("x", held.holds());
      return *handout_.next_for("x");
    }();
    auto receiver = std::move(*held.begin(manifest));
    const int when = i % 4;
    const auto asked = receiver.requests(1000);
    const uint32_t damaged = when == 3 ? asked[random.below(asked.size())] : UINT32_MAX;
    for (const uint32_t index : asked) {
      const auto chunk = *handout_.chunk(manifest.base, manifest.version, index, clock_.now());
      if (index == damaged) {
        Bytes other(chunk.begin(), chunk.end());
        other[random.below(other.size())] ^= static_cast<std::byte>(1 << random.below(8));
        const Status found = receiver.accept(index, other);
        EXPECT_EQ(found.code(), Code::kCorrupt);
        EXPECT_THAT(found.message(), testing::HasSubstr("chunk " + std::to_string(index)));
        refused += !found.ok();
        EXPECT_EQ(receiver.requests(1000), std::vector<uint32_t>{index});
      }
      ASSERT_TRUE(receiver.accept(index, chunk));
    }
    ASSERT_TRUE(receiver.verified());
    if (when == 3) continue;
    const auto& block = blocks_.all()[random.below(blocks_.all().size())];
    const size_t at = block.begin + random.below(block.bytes());
    auto& byte = const_cast<std::byte&>(held.bytes()[at]);
    const auto flip = [&] { byte ^= static_cast<std::byte>(1 << random.below(8)); };
    auto staged = std::move(*executor_->stage());
    if (when == 0) flip();
    ASSERT_TRUE(held.complete(manifest, threads_));
    if (when == 1) flip();
    ASSERT_TRUE(staged->prepare(held.bytes()));
    if (when == 2) flip();
    Status found = staged->verify(held.bytes());
    if (found.ok()) found = held.check(threads_);
    EXPECT_EQ(found.code(), Code::kCorrupt) << "byte " << at << ", " << when;
    EXPECT_THAT(found.message(), testing::AnyOf(testing::HasSubstr("does not match its digest"),
                                                testing::HasSubstr("what is read is not")));
    refused += !found.ok();
  }
  EXPECT_EQ(refused, flips);
}

}  // namespace
}  // namespace tandem::rollout
