// Brings the newest weights into an engine, or into a relay: requests, fetches, verifies and prepares them.
//
// The feed holds the bytes of the newest version in host memory, so a delta suffices for the next one. Weights become
// ready only after every part of those bytes matches its digest and the prepared panels match the bytes. On a failure
// nothing of that version is handed out: its memory is freed, and the weights are fetched whole.
//
// Thread safety: none. Preparation runs on a thread that the feed owns.
#pragma once

#include <atomic>
#include <functional>
#include <memory>
#include <optional>
#include <thread>

#include "base/clock.h"
#include "model/executor.h"
#include "weights_sync/carrier.h"
#include "weights_sync/held.h"
#include "weights_sync/stored_chunks.h"

namespace tandem::rollout {

class WeightsFeed {
 public:
  // Allocates memory for a version, as model::Executor::stage() does.
  using Stage = std::function<Result<std::unique_ptr<model::StagedWeights>>()>;

  // Takes a version that has passed all checks, before it is ready; its bytes are the feed's. On the thread of the
  // preparing. An error refuses the version.
  using Take = std::function<Status(const weights_sync::Wanted& version, std::span<const std::byte> bytes)>;

  // `held` is what the engine begins with; up to `window` chunks are asked for at once; `threads` verify. A null
  // `stage` prepares nothing: ready versions have no weights then.
  WeightsFeed(weights_sync::Held held, int window, int threads, const Clock& clock, Stage stage, Take take = nullptr)
      : newest_(held.holds().version),
        window_(window),
        clock_(clock),
        held_(std::move(held)),
        threads_(threads),
        stage_(std::move(stage)),
        take_(std::move(take)) {}
  ~WeightsFeed() {
    if (preparing_.joinable()) preparing_.join();
  }

  // Chunks are read from here where the trainer stores them; from the trainer where that fails.
  void read_from(std::unique_ptr<weights_sync::StoredChunks> stored) { stored_ = std::move(stored); }

  // Sends the requests and starts the work that are due now. True where something was asked for, if only of a sender
  // that is not there.
  bool tick(wire::Socket& sender);
  // Another sender is asked from now on. What a delta has brought so far is given up, since another sender's delta of
  // these versions may be other bytes; whole weights go on.
  void change_sender();
  void on_manifest(wire::WeightsManifest::Reader manifest);
  void on_chunk(const wire::Incoming& message);

  struct Ready {
    std::unique_ptr<model::StagedWeights> weights;
    uint64_t version = 0;
    double fetch_seconds = 0;    // since its first manifest
    double prepare_seconds = 0;  // of these: decoding, packing, verifying
    uint64_t bytes = 0;          // that came for it
  };
  // The weights that became ready since the last call. After kMostFailures failures in a row it returns their error.
  Result<std::optional<Ready>> take_ready();
  bool fetching() const { return receiver_.has_value() || preparing_.joinable(); }
  bool receiving() const { return receiver_.has_value() && !preparing_.joinable(); }
  bool preparing() const { return preparing_.joinable(); }
  uint64_t newest() const { return newest_; }
  // While nothing is fetched.
  const weights_sync::Held& held() const { return held_; }
  uint64_t refused_chunks() const { return refused_; }
  int refused_in_a_row() const { return refused_in_a_row_; }
  uint64_t refused_versions() const { return refused_versions_; }
  // Bytes that were read from a store, and how often the trainer was asked as it failed.
  uint64_t stored_bytes() const { return stored_ ? stored_->bytes() : 0; }
  uint64_t store_failures() const { return stored_ ? stored_->given_up() : 0; }
  static constexpr int kMostFailures = 3;

 private:
  // Starts a thread that applies what has arrived, and prepares it unless a newer version is known to follow.
  void start_preparing(std::optional<weights_sync::Manifest> come, uint64_t version, bool is_last);
  Status prepare(const std::optional<weights_sync::Manifest>& come, bool is_last);
  Status accept(uint32_t index, std::span<const std::byte> bytes);
  void take_stored();
  void leave_store(const Status& why);
  uint64_t newest_;  // version that was handed out, or that the engine began with
  const int window_;
  const Clock& clock_;
  Time next_query_{}, last_chunk_{}, asked_{}, held_since_{};
  std::optional<Time> started_;  // of the first manifest towards the next version
  weights_sync::Held held_;
  kernels::ThreadPool threads_;
  std::unique_ptr<model::StagedWeights> target_;
  std::optional<weights_sync::Receiver> receiver_;
  std::unique_ptr<weights_sync::StoredChunks> stored_;
  bool is_stored_ = false;  // what receiver_ receives is read there
  bool is_new_sender_ = false;
  const Stage stage_;
  const Take take_;
  std::thread preparing_;
  uint64_t preparing_version_ = 0;
  bool preparing_is_last_ = true;
  std::atomic<bool> prepared_{false};
  Status outcome_;  // of the preparing; of its thread until `prepared_`, as are `held_` and `target_`
  double prepare_seconds_ = 0;
  uint64_t bytes_ = 0, refused_ = 0, refused_versions_ = 0, refused_messages_ = 0;
  int refused_in_a_row_ = 0, failures_in_a_row_ = 0;
  Time ask_again_{};
};

}  // namespace tandem::rollout
