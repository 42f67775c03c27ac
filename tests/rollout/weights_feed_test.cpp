// The feed over a real socket; the test is the trainer.
#include "rollout/weights_feed.h"

#include <gtest/gtest.h>

#include "model/executor.h"
#include "model/weights.h"
#include "weights_sync/carrier.h"

namespace tandem::rollout {
namespace {

using namespace std::chrono_literals;

constexpr const char* kFedModel = TANDEM_SOURCE_DIR "/tests/golden/sft/model";

class WeightsFeedTest : public testing::Test {
 protected:
  static wire::Identity identity(const char* sender) { return {.sender = sender, .epoch = 1, .run = 7}; }

  // Serves version 5 until `done`; false where that did not come within half a minute.
  bool serve(WeightsFeed& feed, const std::function<bool()>& done) {
    const auto manifest = weights_sync::make_manifest(5, bytes_);
    for (const Time deadline = clock_.now() + 30s; clock_.now() < deadline;) {
      feed.tick(to_trainer_);
      wire::Socket* const sockets[] = {&trainer_, &to_trainer_};
      wire::wait(sockets, 5ms);
      while (auto message = trainer_.receive()) {
        wire::Outgoing answer;
        if (message->body().isWeightsQuery()) {
          ++queries_;
          weights_sync::write_manifest(manifest, answer.body().initWeightsManifest());
        } else {
          const uint32_t index = message->body().getChunkRequest().getIndex();
          auto chunk = answer.body().initChunk();
          chunk.setVersion(5);
          chunk.setIndex(index);
          answer.add_bulk(weights_sync::chunk_of(manifest, bytes_, index));
        }
        (void)trainer_.send(message->sender(), answer);
      }
      while (auto message = to_trainer_.receive()) {
        if (message->body().isWeightsManifest()) feed.on_manifest(message->body().getWeightsManifest());
        if (message->body().isChunk()) feed.on_chunk(*message);
      }
      if (done()) return true;
    }
    return false;
  }

  SystemClock clock_;
  model::Weights source_ = std::move(*model::load_weights(kFedModel, false));
  std::vector<std::byte> bytes_{source_.wire().begin(), source_.wire().end()};
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
};

// Weights of an executor, before whose preparing something happens.
class Watched : public model::StagedWeights {
 public:
  Watched(std::unique_ptr<model::StagedWeights> weights, std::function<Status(std::span<std::byte>)> before)
      : weights_(std::move(weights)), before_(std::move(before)) {}
  std::span<std::byte> bytes() override { return weights_->bytes(); }
  Status prepare() override {
    TRY(before_(bytes()));
    return weights_->prepare();
  }

 private:
  std::unique_ptr<model::StagedWeights> weights_;
  const std::function<Status(std::span<std::byte>)> before_;
};

TEST_F(WeightsFeedTest, weights_that_could_not_be_prepared_are_not_ready_and_are_fetched_again) {
  std::atomic<int> tries = 0;
  const auto before = [&](std::span<std::byte> bytes) -> Status {
    EXPECT_TRUE(std::ranges::equal(bytes, bytes_));
    return ++tries == 1 ? Status::exhausted("no memory") : Status();
  };
  WeightsFeed feed(model::WeightFormat::kBf16, 0, 4, clock_, [&]() -> Result<std::unique_ptr<model::StagedWeights>> {
    return std::make_unique<Watched>(TRY(executor_->stage()), before);
  });
  std::optional<WeightsFeed::Ready> ready;
  ASSERT_TRUE(serve(feed, [&] {
    auto taken = feed.take_ready();
    EXPECT_TRUE(taken.has_value());
    ready = std::move(*taken);
    if (tries == 1 && !feed.fetching()) {
      EXPECT_EQ(feed.newest(), 0u);
    }
    return ready.has_value();
  }));
  EXPECT_EQ(tries, 2);
  EXPECT_GE(queries_, 2);
  EXPECT_EQ(ready->version, 5u);
}

TEST_F(WeightsFeedTest, preparing_that_keeps_failing_ends_the_feed_with_its_error) {
  const auto before = [](std::span<std::byte>) { return Status::exhausted("no memory"); };
  WeightsFeed feed(model::WeightFormat::kBf16, 0, 4, clock_, [&]() -> Result<std::unique_ptr<model::StagedWeights>> {
    return std::make_unique<Watched>(TRY(executor_->stage()), before);
  });
  Status ended;
  ASSERT_TRUE(serve(feed, [&] {
    const auto taken = feed.take_ready();
    if (!taken) ended = taken.error();
    return !taken.has_value();
  }));
  EXPECT_EQ(ended.code(), Code::kExhausted);
}

}  // namespace
}  // namespace tandem::rollout
