// The norms of heads behind the product that makes queries, keys and values. Engine and trainer call this same
// function. Thread safety: as the kernels'.
#pragma once

#include "model/transformer.h"
#include "model/weights.h"

namespace tandem::model {

// Norms each head of the queries and each of the keys in place; `qkv` is [rows][queries | keys | values]. The weights
// are those of these parameters.
template <typename T>
Status norm_heads(kernels::Stream& stream, const Weights& weights, int query_weight, int key_weight,
                  const BasicTensor<T>& qkv);

}  // namespace tandem::model
