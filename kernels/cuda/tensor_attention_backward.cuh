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

// AttentionDelta where heads are whole lanes and lie by pieces: the same bits, read 16 elements at a time.
struct TensorAttentionDelta {
  TandemCudaAttentionBackward a;
  float* delta;
  TANDEM_HD void operator()(int64_t i) const {
    const int size = value_size_of(a);
    float lanes[kLanes];
    TANDEM_UNROLL
    for (int lane = 0; lane < kLanes; ++lane) lanes[lane] = 0;
    for (int c = 0; c < size; c += kLanes) {
      alignas(16) uint16_t grads[kLanes], outs[kLanes];
      memcpy(grads, __builtin_assume_aligned(a.grad_out + i * size + c, 16), sizeof grads);
      memcpy(outs, __builtin_assume_aligned(a.out + i * size + c, 16), sizeof outs);
      TANDEM_UNROLL
      for (int lane = 0; lane < kLanes; ++lane)
        lanes[lane] = fmaf(from_bf16(grads[lane]), from_bf16(outs[lane]), lanes[lane]);
    }
    const auto halve = [&](auto half) {
      constexpr int kHalf = decltype(half)::value;
      TANDEM_UNROLL
      for (int lane = 0; lane < kHalf; ++lane) lanes[lane] = lanes[lane] + lanes[lane + kHalf];
    };
    halve(std::integral_constant<int, 8>());
    halve(std::integral_constant<int, 4>());
    halve(std::integral_constant<int, 2>());
    delta[i] = lanes[0] + lanes[1];
  }
};

template <int Size, typename Execution>
int backward_on_tensor_cores(Execution& execution, const TensorBackward& b) {
  const TensorQueryGradient<Size> queries(b);
  const TensorKeyGradient<Size> keys(b);
  return in_order([&] { return start(execution, queries, queries.blocks()); },
                  [&] { return start(execution, keys, keys.blocks()); });
}
template <typename Execution>
int backward_on_tensor_cores(Execution& execution, const TandemCudaAttentionBackward& a, float* delta) {
  const bool aligned = lies_by_pieces(a.queries, a.stride) && lies_by_pieces(a.keys, 0) &&
                       lies_by_pieces(a.values, 0) && lies_by_pieces(a.grad_out, 0);
  const TensorBackward b{a, delta, aligned};
  const int64_t row_heads = static_cast<int64_t>(a.rows) * a.heads;
  const auto form_delta = [&] {
    return aligned && lies_by_pieces(a.out, 0) ? each_element(execution, row_heads, TensorAttentionDelta{a, delta})
                                               : each_element(execution, row_heads, AttentionDelta{a, delta});
  };
  return in_order(form_delta, [&] {
    return a.head_size <= 64 && value_size_of(a) <= 64 ? backward_on_tensor_cores<64>(execution, b)
                                                       : backward_on_tensor_cores<kMostTensorHead>(execution, b);
  });
}

}  // namespace tandem::kernels::cuda
