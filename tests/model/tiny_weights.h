// A small model of random numbers, whose next tokens are neither certain nor all alike.
#pragma once

#include <gtest/gtest.h>

#include <memory>

#include "model/weights.h"

namespace tandem::model {

inline std::shared_ptr<const Weights> tiny_weights(uint64_t seed) {
  ModelConfig config;
  config.family = "llama";
  config.layers = 2;
  config.width = 64;
  config.heads = 3;
  config.kv_heads = 1;
  config.head_size = 64;
  config.mlp_width = 128;
  config.vocabulary = 200;
  config.max_positions = 512;
  config.tied_embeddings = true;
  auto weights = std::make_shared<Weights>(std::move(*Weights::create(config, false)));
  randomise(*weights, seed);
  for (auto& value : weights->flat()) value = kernels::to_bf16(kernels::to_float(value) * 5);
  auto stream = std::move(*kernels::Stream::cpu(2));
  EXPECT_TRUE(weights->pack(stream));
  return weights;
}

}  // namespace tandem::model
