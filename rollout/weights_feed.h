// The newest weights, on their way into an engine: asked for, fetched, verified, prepared, ready.
//
// Weights are ready only after all of them were prepared. Where that fails, nothing of that version is handed out: its
// memory is let go, and the version is fetched again.
//
// Thread safety: none but for the preparing, which runs on a thread that this owns.
#pragma once

#include <atomic>
#include <functional>
#include <memory>
#include <optional>
#include <thread>

#include "base/clock.h"
#include "model/executor.h"
#include "weights_sync/carrier.h"

namespace tandem::rollout {

class WeightsFeed {
 public:
  // Gives room for a version, as model::Executor does.
  using Stage = std::function<Result<std::unique_ptr<model::StagedWeights>>()>;

  WeightsFeed(model::WeightFormat format, uint64_t have_version, int window, const Clock& clock, Stage stage)
      : format_(format), newest_(have_version), window_(window), clock_(clock), stage_(std::move(stage)) {}
  ~WeightsFeed() {
    if (preparing_.joinable()) preparing_.join();
  }

  // Asks, fetches, prepares: whatever is due now.
  void tick(wire::Socket& trainer);
  void on_manifest(wire::WeightsManifest::Reader manifest);
  void on_chunk(const wire::Incoming& message);

  struct Ready {
    std::unique_ptr<model::StagedWeights> weights;
    uint64_t version = 0;
    double fetch_seconds = 0;
    uint64_t bytes = 0;
  };
  // The weights that became ready since the last call. Their error after kMostFailures failures in a row.
  Result<std::optional<Ready>> take_ready();
  bool fetching() const { return receiver_.has_value() || preparing_.joinable(); }
  uint64_t newest() const { return newest_; }
  uint64_t refused_chunks() const { return refused_; }
  static constexpr int kMostFailures = 3;

 private:
  const model::WeightFormat format_;
  uint64_t newest_;  // version that is here or coming
  const int window_;
  const Clock& clock_;
  Time next_query_{}, last_chunk_{}, started_{};
  std::unique_ptr<model::StagedWeights> target_;
  std::optional<weights_sync::Receiver> receiver_;
  const Stage stage_;
  std::thread preparing_;
  std::atomic<bool> prepared_{false};
  Status outcome_;  // of the preparing; of its thread until `prepared_`
  uint64_t refused_ = 0;
  int refused_in_a_row_ = 0, failures_in_a_row_ = 0;
  Time ask_again_{};
};

}  // namespace tandem::rollout
