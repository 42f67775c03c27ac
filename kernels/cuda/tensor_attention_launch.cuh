// Which kernels attention on tensor cores takes.
#pragma once

#include "kernels/cuda/tensor_decode.cuh"
#include "kernels/cuda/tensor_prefill.cuh"

namespace tandem::kernels::cuda {

template <int Size, typename Execution>
int attend_on_tensor_cores(Execution& execution, const TandemCudaAttention& a, bool aligned) {
  const TensorAttention<Size> attention{a, attention_tiling(a.heads, a.kv_heads, TensorPrefill<Size>::kPairs), aligned};
  const TensorPrefill<Size> prefill(attention);
  const TensorDecode<Size> decode(attention);
  const bool few = a.rows <= attention.tiling.few();
  return in_order([&] { return few ? static_cast<int>(kTandemCudaOk) : start(execution, prefill, prefill.blocks()); },
                  [&] { return start(execution, decode, decode.blocks()); });
}
template <typename Execution>
int attend_on_tensor_cores(Execution& execution, const TandemCudaAttention& a) {
  const bool aligned =
      lies_by_pieces(a.queries, a.query_stride) && lies_by_pieces(a.pages.keys, 0) && lies_by_pieces(a.pages.values, 0);
  const int size = a.head_size > value_size_of(a) ? a.head_size : value_size_of(a);
  return size <= 64 ? attend_on_tensor_cores<64>(execution, a, aligned)
                    : attend_on_tensor_cores<kMostTensorHead>(execution, a, aligned);
}

}  // namespace tandem::kernels::cuda
