// The newest weights, on their way into an engine: asked for, fetched, verified, packed, ready.
//
// Weights are ready only after all of them were packed. Where packing fails, nothing of that version is handed out: its
// memory is let go, and the version is fetched again.
//
// Thread safety: none but for the packing, which runs on a thread that this owns.
#pragma once

#include <atomic>
#include <functional>
#include <memory>
#include <optional>
#include <thread>

#include "base/clock.h"
#include "model/weights.h"
#include "weights_sync/carrier.h"

namespace tandem::rollout {

class WeightsFeed {
 public:
  // Makes of received weights what kernels read; called on another thread.
  using Pack = std::function<Status(model::Weights&)>;

  WeightsFeed(const model::ModelConfig& config, model::WeightFormat format, uint64_t have_version, int window,
              const Clock& clock, Pack pack)
      : config_(config),
        format_(format),
        newest_(have_version),
        window_(window),
        clock_(clock),
        pack_(std::move(pack)) {}
  ~WeightsFeed() {
    if (packing_.joinable()) packing_.join();
  }

  // Asks, fetches, packs: whatever is due now.
  void tick(wire::Socket& trainer);
  void on_manifest(wire::WeightsManifest::Reader manifest);
  void on_chunk(const wire::Incoming& message);

  struct Ready {
    std::shared_ptr<const model::Weights> weights;
    uint64_t version = 0;
    double fetch_seconds = 0;
    uint64_t bytes = 0;
  };
  // The weights that became ready since the last call. The packer's error after kMostFailures failures in a row.
  Result<std::optional<Ready>> take_ready();
  // `spare`: weights no longer in use, whose memory is used again.
  void give_back(std::shared_ptr<const model::Weights> spare) { spare_ = std::move(spare); }

  bool fetching() const { return receiver_.has_value() || packing_.joinable(); }
  uint64_t newest() const { return newest_; }
  uint64_t refused_chunks() const { return refused_; }
  static constexpr int kMostFailures = 3;

 private:
  std::shared_ptr<model::Weights> target();

  const model::ModelConfig config_;
  const model::WeightFormat format_;
  uint64_t newest_;  // version that is here or coming
  const int window_;
  const Clock& clock_;
  Time next_query_{}, last_chunk_{}, started_{};
  std::shared_ptr<const model::Weights> spare_;
  std::shared_ptr<model::Weights> target_;
  std::optional<weights_sync::Receiver> receiver_;
  const Pack pack_;
  std::thread packing_;
  std::atomic<bool> packed_{false};
  Status outcome_;  // of the packing; of its thread until `packed_`
  uint64_t refused_ = 0;
  int refused_in_a_row_ = 0, failures_in_a_row_ = 0;
  Time ask_again_{};
};

}  // namespace tandem::rollout
