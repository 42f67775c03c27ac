// The operations that a Tape records; forward in tape.cpp, backward in tape_backward.cpp, of latent attention in
// tape_latent.cpp.
#pragma once

#include <algorithm>
#include <vector>

#include "base/buffer.h"
#include "model/latent.h"
#include "model/layer_ops.h"
#include "model/routes.h"
#include "model/tree_pages.h"
#include "trainer/learn/tape.h"
#include "trainer/learn/tape_record.h"

namespace tandem::trainer {

using kernels::bf16;

// A bump allocator; everything is freed at once.
template <typename T>
class Arena {
 public:
  T* take(size_t count) {
    count = (count + 31) / 32 * 32;
    while (chunk_ < chunks_.size() && used_ + count > chunks_[chunk_].size()) {
      ++chunk_;
      used_ = 0;
    }
    if (chunk_ == chunks_.size()) chunks_.emplace_back(std::max<size_t>(count, size_t{1} << 24));
    T* memory = chunks_[chunk_].data() + used_;
    used_ += count;
    taken_ += count;
    return memory;
  }
  void reset() { chunk_ = used_ = taken_ = 0; }
  size_t taken() const { return taken_; }  // elements

 private:
  std::vector<Buffer<T>> chunks_;
  size_t chunk_ = 0, used_ = 0, taken_ = 0;
};

template <typename T>
T* grown(std::vector<T>& buffer, size_t count) {
  if (buffer.size() < count) buffer.resize(count);
  return buffer.data();
}

// How many choices are given; of those that routers would make otherwise, none.
Tape::GivenRoutes given_routes_of(const TreeRoutes* routes);

// A pass in some number format.
class Tape::Pass {
 public:
  virtual ~Pass() = default;
  virtual Result<std::vector<float>> forward(kernels::Stream& stream, const model::Weights& weights,
                                             const TokenTree& tree, std::span<const TokenPick> picks,
                                             const TreeRoutes* routes, float logit_scale,
                                             std::span<const KeptTokens> kept) = 0;
  virtual GivenRoutes given_routes() const = 0;
  virtual Status backward(std::span<const float> grad_logprobs, const model::Slice& gradients,
                          std::vector<float>* entropies, std::span<const uint8_t> learned) = 0;
  // The states of the picked rows, and their gradient for the next backward pass.
  virtual Result<std::vector<float>> states() = 0;
  virtual void add_to_states(std::span<const float> gradient) = 0;
  virtual Result<std::vector<int32_t>> argmax(std::span<const int> rows) = 0;
  virtual size_t kept_bytes() const = 0;
  virtual std::unique_ptr<SlotMemory> slot_memory(size_t /*bytes*/) { return slot_memory_of_host(); }
};

// Forward in bf16 and in fp32, backward in bf16 alone.
template <typename T>
class Tape::TapeOps final : public model::LayerOps<T>, public Tape::Pass {
 public:
  using Tensor = model::BasicTensor<T>;

  using model::LayerOps<T>::LayerOps;

  Result<std::vector<float>> forward(kernels::Stream& stream, const model::Weights& weights, const TokenTree& tree,
                                     std::span<const TokenPick> picks, const TreeRoutes* routes, float logit_scale,
                                     std::span<const KeptTokens> kept) override;
  GivenRoutes given_routes() const override;
  Status backward(std::span<const float> grad_logprobs, const model::Slice& gradients, std::vector<float>* entropies,
                  std::span<const uint8_t> learned) override;
  Result<std::vector<float>> states() override;
  void add_to_states(std::span<const float> gradient) override { more_grad_states_ = gradient; }
  Result<std::vector<int32_t>> argmax(std::span<const int> rows) override;
  size_t kept_bytes() const override;

  Result<Tensor> embed() override;
  Result<Tensor> norm(const Tensor& x, int weight) override;
  Result<Tensor> linear(const Tensor& x, int weight, int bias) override;
  Result<Tensor> linear_onto(const Tensor& x, int weight, int bias, const Tensor& residual) override;
  Result<Tensor> norm_onto(const Tensor& x, int weight, const Tensor& residual) override;
  Result<Tensor> head_norm(const Tensor& qkv, int query_weight, int key_weight) override;
  Result<Tensor> attention(const Tensor& qkv, int layer) override;
  Result<Tensor> expand_latents(const Tensor& compressed, int layer) override;
  Result<Tensor> project_values(const Tensor& gathered, int layer) override;
  Result<Tensor> swiglu(const Tensor& gate_up) override;
  Result<Tensor> dispatch(const Tensor& x, int router, int router_bias) override;
  Result<Tensor> grouped_linear(const Tensor& x, int weights) override;
  Result<Tensor> combine(const Tensor& y, const Tensor& residual) override;

 private:
  using enum TapeKind;
  using Record = TapeRecord<Tensor>;
  using Base = model::LayerOps<T>;
  using Base::config_, Base::shape_, Base::columns_, Base::rotation_, Base::activations_, Base::stream_, Base::weights_,
      Base::layout, Base::multiply, Base::multiplied_by, Base::gather;

  bool learns(int parameter) const { return learned_.empty() || learned_[parameter] != 0; }
  float* grad_of(int parameter) const { return grads_ + layout().parameters[parameter].offset; }
  // The gradient of a norm, whose kernel has no way to leave it out.
  float* grad_of_norm(int parameter);

  Tensor record(Record entry, int rows, int columns);
  // The output of a record that was not kept, once more; valid until the next.
  Result<const T*> recompute(const Record& record);
  Result<const T*> input_of(const Record& record);
  Result<const T*> multiplied_input_of(const Record& record);  // as the record's product saw it
  Status compute(const Record& record, const T* in, T* out);
  std::vector<T>& scratch_of(const Record& record) { return record.kind == kDispatch ? dispatched_ : scratch_; }

  Result<std::vector<float>> head(std::span<const TokenPick> picks, std::span<const KeptTokens> kept);

  Status backward(const Record& record);
  Status head_backward(std::span<const float> grad_logprobs, std::vector<float>* entropies);
  Status norm_backward(const Record& record, const T* grad_out, T* grad_x, bool accumulate);
  Status linear_backward(const Record& record, const T* grad_out);
  Status add_weight_gradient(int weight, const T* x, int inputs, const T* grad_out, int outputs);
  // Adds grad_out^T x to [outputs][inputs] of the gradients at `target`; both of rows of some stride.
  Status add_strided_gradient(float* target, const T* x, size_t x_stride, int inputs, const T* grad_out,
                              size_t grad_stride, int outputs);
  Status head_norm_backward(const Record& record);
  Status attention_backward(const Record& record);
  Status expand_latents_backward(const Record& record);
  Status project_values_backward(const Record& record);
  Status combine_backward(const Record& record);
  Status grouped_linear_backward(const Record& record);
  Status add_grouped_gradient(const Record& record);
  Status dispatch_backward(const Record& record);

  const TokenTree* tree_ = nullptr;
  float* grads_ = nullptr;
  std::span<const uint8_t> learned_;
  std::span<const float> more_grad_states_;  // of the next backward pass
  int rows_ = 0;
  bool have_residual_grad_ = false;
  Arena<T> arena_;
  std::vector<Record> records_;
  std::vector<std::vector<float>> log_sums_;      // of each layer
  std::vector<model::Routes> routes_;             // of each layer with experts
  std::vector<model::LatentQueries<T>> latents_;  // of each layer, where attention is latent
  size_t routes_used_ = 0;
  const TreeRoutes* given_ = nullptr;  // of the pass at hand; null: none
  Tensor hidden_;
  model::TreePages<T> pages_{shape_};
  TreePaths paths_;
  std::vector<T> scratch_, dispatched_, packed_, packed_grad_;
  std::vector<T> grad_residual_, grad_branch_, grad_wide_, grad_dispatched_, grad_logits_;
  std::vector<T> grad_spare_, grad_queries_, columns_of_x_, columns_of_grad_;
  std::vector<float> grad_weights_, unwanted_;
  HeadRows head_;
  std::vector<float> head_log_sum_;
  float logit_scale_ = 1;           // of the pass at hand
  std::vector<float> head_scales_;  // of the picked rows; empty: 1
};

template <>
Status Tape::TapeOps<float>::backward(std::span<const float> grad_logprobs, const model::Slice& gradients,
                                      std::vector<float>* entropies, std::span<const uint8_t> learned);

}  // namespace tandem::trainer
