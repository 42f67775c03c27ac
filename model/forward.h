// The transformer for inference: paged keys and values, no memory of what was computed. Below the CPU's executor.
#pragma once

#include <memory>
#include <span>
#include <vector>

#include "base/buffer.h"
#include "kernels/lm_head.h"
#include "model/batch.h"
#include "model/head_outputs.h"
#include "model/transformer.h"
#include "model/weights.h"

namespace tandem::model {

// Memory for the keys and values of `pages` pages of all layers, bf16, or fp32 for weights in float32. Who holds which
// page is not decided here.
// Thread safety: none; one engine's.
class KvPool {
 public:
  static Result<KvPool> create(const ModelConfig& config, int pages, WeightFormat format = WeightFormat::kBf16);
  static size_t page_bytes_of(const ModelConfig& config, WeightFormat format);
  int pages() const { return pages_; }
  size_t page_bytes() const { return page_bytes_; }
  // T is bf16 or float, as the format says.
  template <typename T>
  kernels::BasicKeyValuePage<T> page(int page, int layer) const;
  // A page must be cleared when it is handed out: what it held may be infinite, and 0 * infinity is not 0.
  void clear(int page);
  void copy(int from, int to);
  std::span<std::byte> bytes(int page) { return {memory_.data() + page * page_bytes_, page_bytes_}; }

 private:
  int pages_ = 0;
  size_t keys_ = 0, elements_ = 0;  // elements of a page of one layer: its keys, and all
  size_t page_bytes_ = 0;
  Buffer<std::byte> memory_;
};

// Runs batches through one model. Buffers are kept from pass to pass.
// Thread safety: none. Weights may be exchanged between two passes by others of the same format; pools are of it, too.
class Forward {
 public:
  Forward(const ModelConfig& config, int max_positions, WeightFormat format = WeightFormat::kBf16);
  ~Forward();
  Forward(Forward&&) noexcept;

  // Writes the batch's keys and values into `pool`. `adapted`: rows that have an adapter beside the weights, none
  // twice. `routes`, where given, gets the experts of each row (base/expert_routes.h, of route_shape()).
  Status run(kernels::Stream& stream, const Weights& weights, KvPool& pool, const Batch& batch,
             std::span<const AdaptedRows> adapted = {}, std::vector<uint8_t>* routes = nullptr);

  // The head of `rows` of the last pass, by its stream and weights. `outputs` has one entry for each of `rows`; `picks`
  // count them from 0.
  Status head(std::span<const int> rows, const HeadOutputs& outputs, std::span<const kernels::TokenPick> picks,
              std::span<float> logprobs);
  // The states of `rows` of the last pass, which the head reads, one behind the other.
  std::vector<float> states(std::span<const int> rows);
  int max_positions() const;

 private:
  class Pass;
  template <typename T>
  class InferenceOps;
  std::unique_ptr<Pass> pass_;
};

}  // namespace tandem::model
