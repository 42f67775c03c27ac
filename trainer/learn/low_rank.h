// LoRA (Hu et al. 2021): two low-rank factors for each matrix are trained; the base model is frozen.
//
// The weights that sampler and trainer compute with are the model's with the factors merged in, rounded to bf16
// (model/adapter.h), so a token's logprob is the same bits in both as it is without LoRA, and serving costs nothing.
// Gradients are those of the merged weights, passed on: with W' = W + s B A, dB = s dW' A^T and dA = s B^T dW'. What is
// saved is memory: masters and moments of the factors alone, 8 bytes a weight instead of 18.
//
// Factors lie in one flat slice of the host: of each matrix, in the order of names, A [rank][columns] and then B
// [rows][rank]; fp32.
//
// Thread safety: none.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "base/buffer.h"
#include "model/adapter.h"
#include "model/slice.h"

namespace tandem::trainer {

struct LowRankSettings {
  int rank = 0;                      // 0: no LoRA, all weights learn
  double alpha = 16;                 // scale of B A is alpha / rank
  bool use_rslora = false;           // alpha / sqrt(rank) (Kalajdzievski 2023)
  std::vector<std::string> targets;  // "q_proj"; empty: all matrices of the layers but routers
  std::string start;                 // adapter to go on with, of this rank, alpha and targets; empty: a new one
  uint64_t seed = 1;                 // of a new one
};

class LowRank {
 public:
  // kInvalid names the wrong setting: a target that the model does not have, or a difference from the adapter to go on
  // with.
  static Status check(const model::ParameterLayout& layout, const LowRankSettings& settings);
  // Layout only: elements() and description(); allocates nothing. Same errors as check(), except the adapter's.
  static Result<LowRank> plan(const model::ParameterLayout& layout, const LowRankSettings& settings);
  // `weights` are bf16, before any factors were merged.
  static Result<LowRank> create(const model::Weights& weights, const LowRankSettings& settings);

  const LowRankSettings& settings() const { return settings_; }
  size_t elements() const { return elements_; }
  // Elements of the base weights of the targets, which it keeps.
  size_t base_elements() const { return base_elements_; }
  // "LoRA of rank 8, alpha 16, on down_proj, q_proj": factors of one description and one model are alike.
  std::string description() const;

  // By parameter: 1 where the gradient of its weights is needed.
  std::vector<uint8_t> learned(const model::ParameterLayout& layout) const;
  // Writes the factors of the adapter to go on with. Without one, A is uniform within 1 / sqrt(columns) of 0, as in
  // PEFT, and B is zero: the merged model equals the base model.
  Status initialise(const model::Slice& factors) const;
  // Computes the factors' gradients from those of the weights. `grads` is written, not added to.
  Status pass_on(kernels::Stream& stream, const model::ConstSlice& factors, const model::ConstSlice& weight_grads,
                 const model::Slice& grads);
  // Merges the factors into the target matrices of `weights`; the caller packs them afterwards.
  Status merge(kernels::Stream& stream, const model::ConstSlice& factors, model::Weights& weights) const;
  // The factors as a PEFT adapter.
  model::Adapter adapter(const model::ConstSlice& factors) const;

 private:
  struct Target {
    std::string name;
    model::Matrix matrix;
    size_t base = 0;      // where its values begin in base_
    size_t a = 0, b = 0;  // and its factors in the flat array
  };
  explicit LowRank(const LowRankSettings& settings) : settings_(settings) {}
  float scale() const;
  Status check_fits(const model::Adapter& adapter) const;

  LowRankSettings settings_;
  std::vector<Target> targets_;
  size_t elements_ = 0, base_elements_ = 0;
  Buffer<kernels::bf16> base_;  // of the targets, as the model had them
  Buffer<float> packed_, transposed_;
};

}  // namespace tandem::trainer
