#include "rollout/weights_feed.h"

#include <spdlog/spdlog.h>

namespace tandem::rollout {

using namespace std::chrono_literals;

void WeightsFeed::tick(wire::Socket& trainer) {
  const Time now = clock_.now();
  if (!fetching() && now >= next_query_) {
    next_query_ = now + 1s;  // the trainer announces; asking again is for the case that nobody heard
    wire::Outgoing query;
    query.body().setWeightsQuery();
    (void)trainer.send("", query);
  }
  if (!receiver_) return;
  if (now - last_chunk_ > 3s) {
    receiver_->forget_outstanding();
    last_chunk_ = now;
  }
  if (now < ask_again_) return;
  for (const uint32_t index : receiver_->requests(window_)) {
    wire::Outgoing request;
    auto chunk = request.body().initChunkRequest();
    chunk.setVersion(receiver_->manifest().version);
    chunk.setIndex(index);
    if (!trainer.send("", request).ok()) return receiver_->forget_outstanding();
  }
}

void WeightsFeed::on_manifest(wire::WeightsManifest::Reader in) {
  if (preparing_.joinable()) return;  // asked again when it is done
  auto manifest = weights_sync::read_manifest(in);
  if (!manifest || manifest->version <= newest_) return;
  // The same version with other digests is of a trainer that came back from a checkpoint: what was begun cannot end.
  if (receiver_ && receiver_->manifest().version == manifest->version &&
      receiver_->manifest().digests == manifest->digests)
    return;
  if (!target_) {
    auto room = stage_();
    if (!room) return spdlog::error("no room for new weights: {}", room.error().message());
    target_ = std::move(*room);
  }
  auto receiver = weights_sync::Receiver::begin(std::move(*manifest), target_->bytes(), model::to_string(format_));
  if (!receiver) return spdlog::error("weights refused: {}", receiver.error().message());
  receiver_ = std::move(*receiver);
  started_ = last_chunk_ = clock_.now();
}

void WeightsFeed::on_chunk(const wire::Incoming& message) {
  const auto chunk = message.body().getChunk();
  if (!receiver_ || chunk.getVersion() != receiver_->manifest().version || message.bulk_count() != 1) return;
  last_chunk_ = clock_.now();
  if (const Status status = receiver_->accept(chunk.getIndex(), message.bulk(0)); !status.ok()) {
    ++refused_;
    // A sender whose own copy is damaged sends the same again; asking without pause would only load the line.
    refused_in_a_row_ = std::min(refused_in_a_row_ + 1, 20);
    ask_again_ = clock_.now() + 50ms * refused_in_a_row_;
    spdlog::warn("{}; asking again", status.message());
  } else {
    refused_in_a_row_ = 0;
  }
  if (!receiver_->verified()) return;
  prepared_ = false;
  preparing_ = std::thread([this] {
    outcome_ = target_->prepare();
    prepared_ = true;
  });
}

Result<std::optional<WeightsFeed::Ready>> WeightsFeed::take_ready() {
  if (!preparing_.joinable() || !prepared_) return std::optional<Ready>();
  preparing_.join();
  if (!outcome_.ok()) {
    // The memory holds a mixture of two versions.
    target_ = nullptr;
    const uint64_t version = receiver_->manifest().version;
    receiver_.reset();
    if (++failures_in_a_row_ >= kMostFailures) return fail(outcome_);
    spdlog::error("weights {} could not be prepared: {}; fetching them again", version, outcome_.message());
    next_query_ = clock_.now() + 1s;
    return std::optional<Ready>();
  }
  failures_in_a_row_ = 0;
  newest_ = receiver_->manifest().version;
  Ready ready{.weights = std::move(target_),
              .version = newest_,
              .fetch_seconds = to_seconds(clock_.now() - started_),
              .bytes = receiver_->manifest().bytes};
  target_ = nullptr;
  receiver_.reset();
  next_query_ = {};
  return ready;
}

}  // namespace tandem::rollout
