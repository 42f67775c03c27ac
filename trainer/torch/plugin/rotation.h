// RoPE in LibTorch's operators, from the terms of a checkpoint. Private to trainer/torch/plugin/.
//
// Written from transformers' definitions, not from model/rope.h, so that one is a check of the other.
#pragma once

#include <torch/types.h>

#include "trainer/torch/interface/tandem_torch_model.h"

namespace tandem::torch_plugin {

class Rotation {
 public:
  // For positions 0 to `positions` - 1. Throws where the kind is none of the interface's.
  Rotation(const TandemTorchRope& rope, int64_t positions);

  // `heads` is [heads, positions, size], float32; elements behind the first rope.dim stay as they are.
  at::Tensor turn(const at::Tensor& heads) const;

 private:
  const int64_t dim_;
  const bool interleaved_;
  at::Tensor cos_, sin_;  // [positions, dim / 2]
};

// The factor of latent attention's scores: of yarn with `mscale_all_dim` the square of the factor that it gives.
double score_factor(const TandemTorchRope& rope);

}  // namespace tandem::torch_plugin
