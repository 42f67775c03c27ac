// The transformer for inference: paged keys and values, no memory of what was computed.
#pragma once

#include <memory>
#include <span>
#include <vector>

#include "base/buffer.h"
#include "kernels/lm_head.h"
#include "model/transformer.h"
#include "model/weights.h"

namespace tandem::model {

// Memory for the keys and values of `pages` pages of all layers. Who holds which page is not decided here.
// Thread safety: none; one engine's.
class KvPool {
 public:
  static Result<KvPool> create(const ModelConfig& config, int pages);
  int pages() const { return pages_; }
  size_t page_bytes() const { return layers_ * 2 * elements_ * sizeof(kernels::bf16); }
  kernels::KeyValuePage page(int page, int layer) const;
  // A page must be cleared when it is handed out: what it held may be infinite, and 0 * infinity is not 0.
  void clear(int page);
  void copy(int from, int to);

 private:
  int pages_ = 0;
  size_t layers_ = 0, elements_ = 0;
  Buffer<kernels::bf16> memory_;
};

// Tokens to run through the model in one pass.
struct ForwardBatch {
  struct Run {
    int row = 0;  // of `tokens`
    int rows = 0;
    int position = 0;            // of the first row in its sequence
    std::span<const int> pages;  // of the sequence, enough for position + rows
  };
  std::vector<int32_t> tokens;
  std::vector<int32_t> positions;
  std::vector<Run> runs;  // cover all rows

  void add(std::span<const int32_t> run_tokens, int position, std::span<const int> pages);
};

// Runs batches through one model. Buffers are kept from pass to pass.
// Thread safety: none. Weights may be exchanged between two passes.
class Forward {
 public:
  Forward(const ModelConfig& config, int max_positions);
  ~Forward();
  Forward(Forward&&) noexcept;

  // Writes the batch's keys and values into `pool`; the result is [rows][width], valid until the next pass.
  Result<Tensor> run(kernels::Stream& stream, const Weights& weights, KvPool& pool, const ForwardBatch& batch);
  int max_positions() const;

 private:
  class InferenceOps;
  std::unique_ptr<InferenceOps> ops_;
};

}  // namespace tandem::model
