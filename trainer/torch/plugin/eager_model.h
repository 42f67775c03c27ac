// The transformer in LibTorch's own operators, in float32: every family that model/config.h reads. Private to
// trainer/torch/plugin/.
//
// A second writing of the model, from transformers' definitions: it has none of our kernels, layouts or orders of
// additions, so that where both agree neither is likely to be wrong. Tensors stay as the checkpoint has them and become
// float32 where they are used, so memory is that of the file's mapping and of one matrix; activations, scores and sums
// are float32.
//
// Thread safety: one call at a time.
#pragma once

#include <torch/types.h>

#include <map>
#include <string>
#include <vector>

#include "trainer/torch/interface/tandem_torch_model.h"

namespace tandem::torch_plugin {

class Rotation;

class EagerModel {
 public:
  // Throws where a tensor has a dtype that the interface does not know.
  EagerModel(const TandemTorchShape& shape, const TandemTorchTensor* tensors, size_t count);

  struct Scores {
    at::Tensor logprobs;   // [count - 1], float32
    at::Tensor likeliest;  // [count], int64
  };
  // `tokens` is [count], int64.
  Scores score(const at::Tensor& tokens) const;

 private:
  bool has(const std::string& name) const { return tensors_.contains(name); }
  const at::Tensor& stored(const std::string& name) const;
  at::Tensor weight(const std::string& name) const;  // float32, dequantised, with the adapter's product
  // Applies modules: `name` without ".weight".
  at::Tensor linear(const at::Tensor& x, const std::string& name) const;
  at::Tensor norm(const at::Tensor& x, const std::string& name, double epsilon) const;

  at::Tensor hidden_states(const at::Tensor& tokens) const;
  at::Tensor attention(const at::Tensor& x, const std::string& layer, int64_t window, const Rotation& rotation) const;
  at::Tensor latent_attention(const at::Tensor& x, const std::string& layer, const Rotation& rotation) const;
  at::Tensor mlp(const at::Tensor& x, const std::string& name) const;
  at::Tensor experts(const at::Tensor& x, const std::string& name) const;

  TandemTorchShape shape_;
  std::vector<uint8_t> sliding_;
  std::map<std::string, at::Tensor> tensors_;  // over the caller's memory
};

}  // namespace tandem::torch_plugin
