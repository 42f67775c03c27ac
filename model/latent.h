// Multi-head latent attention (DeepSeek-AI 2024, section 2.1), as rows that the attention of all other models takes.
//
// A token is remembered by a latent c, normed, and a key k of rope_dim elements with RoPE, the same for all heads. A
// head's own key would be [U c | k] and its value V c, with U and V the head's parts of kv_b_proj; but q . U c is
// (U^T q) . c, and sum_j p_j V c_j is V sum_j p_j c_j. So queries are taken to the latents, once a token, and not the
// latents to the heads, once a token, head and pass:
//
//   query of a head  [U^T q_plain | q_rope | 0]      key, of all heads  [c | k | 0]      value  the key's first
//   elements
//
// filled up with zeros to the widths of attention_shape. Prefill, decode and training all take this way, so it has one
// order of additions; docs/numerics.md lists where bf16 is rounded. Both norms have 1e-6 for epsilon whatever the
// config says, as their class in transformers has.
//
// Engine and trainer call these same functions, in bf16 and in fp32. Thread safety: none; buffers are kept and grow.
#pragma once

#include <vector>

#include "model/transformer.h"
#include "model/weights.h"

namespace tandem::model {

constexpr float kLatentNormEpsilon = 1e-6f;

// Results of the expansion that the backward pass reads. Both are empty where queries are made of the states.
template <typename T>
struct LatentQueries {
  std::vector<T> normed;   // [rows][query_rank]: the latents of queries behind their norm
  std::vector<T> queries;  // [rows][heads * head_size]
};

// Elements of a row of `compressed` before the latent: the queries' latent, or the queries.
inline int query_columns(const ModelConfig& config) {
  return config.latent.query_rank > 0 ? config.latent.query_rank : config.heads * config.head_size;
}

// `compressed` is [rows][query_columns | rank | rope_dim], the product of the states with the layer's qkv; `out` is
// [rows][(heads + 1) * the width of attention_shape]: queries by head, and the key, before RoPE.
template <typename T>
Status expand_latents(kernels::Stream& stream, const Weights& weights, int layer, const BasicTensor<T>& compressed,
                      QuantizedActivations& activations, LatentQueries<T>& latents, const BasicTensor<T>& out);

// `gathered` is what attention made of the latents, [rows][heads * value_size of attention_shape]; `out` is
// [rows][heads
// * value].
template <typename T>
Status project_values(kernels::Stream& stream, const Weights& weights, int layer, const BasicTensor<T>& gathered,
                      const BasicTensor<T>& out);

}  // namespace tandem::model
