#include "rollout/weights_feed.h"

#include <spdlog/spdlog.h>

#include <utility>

namespace tandem::rollout {

using namespace std::chrono_literals;

namespace {
constexpr auto kNothingCame = 1s, kAskAgain = 3s;
}

bool WeightsFeed::tick(wire::Socket& sender) {
  const Time now = clock_.now();
  bool has_asked = false;
  if (stored_) take_stored();
  // Whole weights that were begun elsewhere go on if this sender has them: what it offers says so.
  if ((!fetching() || (receiving() && is_new_sender_)) && now >= next_query_) {
    is_new_sender_ = false;
    wire::Outgoing query;
    weights_sync::write_wanted(held_.holds(), query.body().initWeightsWanted());
    const bool is_there = sender.send("", query).ok();
    // Versions are announced; asking again is for the case that nobody heard.
    next_query_ = now + (is_there ? 1000ms : 50ms);
    has_asked = true;
  }
  // The delta that was to follow does not come: the trainer has gone back to what is held.
  const auto& held = held_.holds();
  const bool has_begun = target_ != nullptr || (!stage_ && started_);
  if (!fetching() && has_begun && held.holds && held.version > newest_ && now - held_since_ > kAskAgain)
    start_preparing(std::nullopt, held.version, true);
  if (!receiver_ || preparing_.joinable()) return has_asked;
  // A chunk may have been in a message that was refused.
  if (const uint64_t refused = sender.refused(); refused != std::exchange(refused_messages_, refused))
    receiver_->forget_outstanding();
  if (!is_stored_ && now - std::max(last_chunk_, asked_) > kAskAgain) {
    receiver_->forget_outstanding();
    asked_ = now;
  }
  if (now < ask_again_) return has_asked;
  const auto& manifest = receiver_->manifest();
  for (const uint32_t index : receiver_->requests(window_)) {
    if (is_stored_) {
      if (!stored_->ask(manifest, index)) {
        leave_store(Status::exhausted("too much is asked for"));
        return has_asked;
      }
      continue;
    }
    wire::Outgoing request;
    auto chunk = request.body().initChunkRequest();
    chunk.setVersion(manifest.version);
    chunk.setBase(manifest.base);
    chunk.setIndex(index);
    has_asked = true;
    if (sender.send("", request).ok()) continue;
    receiver_->forget_outstanding();
    break;
  }
  return has_asked;
}

void WeightsFeed::change_sender() {
  is_new_sender_ = true;
  next_query_ = {};
  refused_in_a_row_ = 0;
  if (!receiving()) return;
  if (receiver_->manifest().whole())
    receiver_->forget_outstanding();
  else
    receiver_.reset();
}

void WeightsFeed::on_manifest(wire::WeightsManifest::Reader in) {
  if (preparing_.joinable()) return;  // asked again when it is done
  auto manifest = weights_sync::read_manifest(in);
  if (!manifest || manifest->version <= newest_) return;
  if (!manifest->whole() && manifest->base != held_.holds().version) {
    next_query_ = {};  // announced before the trainer heard what is held by now
    return;
  }
  if (receiver_) {
    // What comes is not given up for something newer, or a slow line would never see the end of anything. The same
    // version with other digests is of a trainer that came back from a checkpoint: what was begun cannot end. Nor can
    // what the trainer has no more, as it says when it is asked for a chunk.
    const auto& coming = receiver_->manifest();
    const bool same = coming.version == manifest->version && coming.base == manifest->base;
    if (same ? coming.digests == manifest->digests : clock_.now() - last_chunk_ < kNothingCame) return;
  } else if (!started_) {
    started_ = clock_.now();
    bytes_ = 0;
    prepare_seconds_ = 0;
  }
  if (!target_ && stage_) {
    auto room = stage_();
    if (!room) return spdlog::error("no room for new weights: {}", room.error().message());
    target_ = std::move(*room);
  }
  auto receiver = held_.begin(std::move(*manifest));
  if (!receiver) return spdlog::error("weights refused: {}", receiver.error().message());
  receiver_ = std::move(*receiver);
  is_stored_ = stored_ && stored_->has(receiver_->manifest());
  last_chunk_ = asked_ = clock_.now();
}

void WeightsFeed::on_chunk(const wire::Incoming& message) {
  const auto chunk = message.body().getChunk();
  if (!receiver_ || preparing_.joinable() || message.bulk_count() != 1) return;
  const auto& manifest = receiver_->manifest();
  if (chunk.getVersion() != manifest.version || chunk.getBase() != manifest.base) return;
  if (const Status status = accept(chunk.getIndex(), message.bulk(0)); !status.ok()) {
    // A sender whose own copy is damaged sends the same again; asking without pause would only load the line.
    refused_in_a_row_ = std::min(refused_in_a_row_ + 1, 20);
    ask_again_ = clock_.now() + 50ms * refused_in_a_row_;
    spdlog::warn("{}; asking again", status.message());
  } else {
    refused_in_a_row_ = 0;
  }
}

// Prepares what is whole with it.
Status WeightsFeed::accept(uint32_t index, std::span<const std::byte> bytes) {
  last_chunk_ = clock_.now();
  if (Status status = receiver_->accept(index, bytes); !status) {
    ++refused_;
    return status;
  }
  bytes_ += bytes.size();
  const auto& manifest = receiver_->manifest();
  if (receiver_->verified()) start_preparing(manifest, manifest.version, manifest.newest <= manifest.version);
  return {};
}

void WeightsFeed::take_stored() {
  for (const auto& come : stored_->take()) {
    if (!receiver_ || !is_stored_ || preparing_.joinable()) continue;
    const auto& manifest = receiver_->manifest();
    if (come.version != manifest.version || come.base != manifest.base) continue;
    Status status = come.bytes ? accept(come.index, std::as_bytes(std::span(*come.bytes))) : come.bytes.error();
    if (!status) {
      leave_store(status);
      continue;
    }
    stored_->went_well(come.bytes->size());
  }
}

void WeightsFeed::leave_store(const Status& why) {
  spdlog::warn("weights {} are not read from the store, and asked for from the trainer: {}",
               receiver_->manifest().version, why.to_string());
  is_stored_ = false;
  stored_->gave_up();
  receiver_->forget_outstanding();
  asked_ = clock_.now();
}

void WeightsFeed::start_preparing(std::optional<weights_sync::Manifest> come, uint64_t version, bool is_last) {
  prepared_ = false;
  preparing_version_ = version;
  preparing_is_last_ = is_last;
  preparing_ = std::thread([this, come = std::move(come), is_last] {
    const Time start = clock_.now();
    outcome_ = prepare(come, is_last);
    prepare_seconds_ += to_seconds(clock_.now() - start);
    prepared_ = true;
  });
}

Status WeightsFeed::prepare(const std::optional<weights_sync::Manifest>& come, bool is_last) {
  if (come) TRY(held_.complete(*come, threads_));
  if (!is_last) return {};  // the next delta is on this one
  if (target_) {
    TRY(target_->prepare(held_.bytes()));
    // In this order: bytes that changed since they were packed are found by the one or the other.
    TRY(target_->verify(held_.bytes()));
  }
  TRY(held_.check(threads_));
  return take_ ? take_(held_.holds(), held_.bytes()) : Status();
}

Result<std::optional<WeightsFeed::Ready>> WeightsFeed::take_ready() {
  if (!preparing_.joinable() || !prepared_) return std::optional<Ready>();
  preparing_.join();
  receiver_.reset();
  next_query_ = {};
  if (!outcome_.ok()) {
    held_.let_go();
    target_ = nullptr;
    ++refused_versions_;
    if (++failures_in_a_row_ >= kMostFailures) return fail(outcome_);
    spdlog::error("weights {} are not taken: {}; fetching them whole", preparing_version_, outcome_.message());
    next_query_ = clock_.now() + 1s;
    return std::optional<Ready>();
  }
  if (!preparing_is_last_) {
    held_since_ = clock_.now();
    return std::optional<Ready>();
  }
  failures_in_a_row_ = 0;
  newest_ = preparing_version_;
  return Ready{.weights = std::move(target_),
               .version = newest_,
               .fetch_seconds = to_seconds(clock_.now() - *std::exchange(started_, std::nullopt)),
               .prepare_seconds = prepare_seconds_,
               .bytes = bytes_};
}

}  // namespace tandem::rollout
