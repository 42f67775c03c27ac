// The gradient of attention on tensor cores: what a stream with tensor kernels makes of heads that these take.
//
// The definition is that of attention_backward.cuh but for its sums of products: both dots of a pair, the sum over a
// block of 64 keys and the sum over a block of 64 queries of a run are tensor chains from 0 (tensor_chain), of a block
// over its places 0 .. 63, where what is not seen or not there is 0. Blocks are those of the exact kernels, and so are
// which of them a row adds and the order in which it does; rows add nothing of others. A path that holds a row must
// hold the rows before it of that row's run.
#pragma once

#include "kernels/cuda/tensor_key_gradient.cuh"
#include "kernels/cuda/tensor_query_gradient.cuh"

namespace tandem::kernels::cuda {

template <int Size, typename Execution>
int backward_on_tensor_cores(Execution& execution, const TensorBackward& b) {
  const TensorQueryGradient<Size> queries(b);
  const TensorKeyGradient<Size> keys(b);
  return in_order([&] { return start(execution, queries, queries.blocks()); },
                  [&] { return start(execution, keys, keys.blocks()); });
}
template <typename Execution>
int backward_on_tensor_cores(Execution& execution, const TandemCudaAttentionBackward& a, const float* delta) {
  const bool aligned = lies_by_pieces(a.queries, a.stride) && lies_by_pieces(a.keys, 0) &&
                       lies_by_pieces(a.values, 0) && lies_by_pieces(a.grad_out, 0);
  const TensorBackward b{a, delta, aligned};
  return a.head_size <= 64 && value_size_of(a) <= 64 ? backward_on_tensor_cores<64>(execution, b)
                                                     : backward_on_tensor_cores<kMostTensorHead>(execution, b);
}

}  // namespace tandem::kernels::cuda
