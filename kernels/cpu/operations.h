// The list of operations that an instruction set provides; one table each, compiled from the same sources.
//
// Arguments have been checked by the public functions of kernels/*.h, which are the only callers.
#pragma once

#include <span>
#include <vector>

#include "kernels/attention.h"
#include "kernels/encoder_ops.h"
#include "kernels/experts.h"
#include "kernels/gemm.h"
#include "kernels/lm_head.h"
#include "kernels/optimizer.h"
#include "kernels/quantize.h"
#include "kernels/threads.h"
#include "kernels/transformer_ops.h"

namespace tandem::kernels {

// Operations of inference, in one number format of activations and weights.
template <typename T>
struct ForwardOperations {
  void (*pack)(ThreadPool&, const T* weight, int n, int k, T* packed);
  void (*pack_transposed)(ThreadPool&, const T* weight, int k, int n, T* packed);
  void (*gemm)(ThreadPool&, const BasicGemm<T>&);
  void (*write_pages)(ThreadPool&, const AttentionShape&, const T* keys, size_t key_stride, const T* values,
                      size_t value_stride, int rows, int position, std::span<const BasicKeyValuePage<T>>);
  void (*attention)(ThreadPool&, const AttentionShape&, const T* queries, size_t query_stride,
                    std::span<const BasicQueryRun<T>>, T* out, size_t out_stride, float* log_sum);
  void (*rms_norm)(ThreadPool&, const T* x, const T* weight, float epsilon, int rows, int width, T* out);
  void (*head_norm)(ThreadPool&, const BasicHeadNorm<T>&);
  void (*rope)(ThreadPool&, const BasicRope<T>&);
  void (*swiglu)(ThreadPool&, const T* gate_up, int rows, int width, T* out);
  void (*geglu)(ThreadPool&, const T* gate_up, int rows, int width, T* out);
  void (*add)(ThreadPool&, const T* y, size_t count, T* x);
  void (*lm_head)(ThreadPool&, const BasicLmHead<T>&, std::span<const TokenPick>, std::span<float> logprobs);
  void (*permute)(ThreadPool&, const BasicPermute<T>&);
  void (*combine)(ThreadPool&, const BasicCombine<T>&);
  void (*grouped_gemm)(ThreadPool&, const BasicGroupedGemm<T>&);
  void (*batched_gemm)(ThreadPool&, const BasicBatchedGemm<T>&);
};

struct CpuOperations {
  ForwardOperations<bf16> in_bf16;
  ForwardOperations<float> in_float32;
  template <typename T>
  const ForwardOperations<T>& in() const {
    if constexpr (sizeof(T) == sizeof(bf16))
      return in_bf16;
    else
      return in_float32;
  }
  void (*attention_backward)(ThreadPool&, const AttentionShape&, const AttentionBackward&,
                             std::span<const std::vector<TreeRun>>);
  void (*embed_backward)(ThreadPool&, const bf16* grad_out, int width, std::span<const int32_t> ids, float* grad_table);
  void (*rms_norm_backward)(ThreadPool&, const RmsNormBackward&);
  void (*head_norm_backward)(ThreadPool&, const HeadNormBackward&);
  void (*sum_rows)(ThreadPool&, const SumRows&);
  void (*swiglu_backward)(ThreadPool&, const bf16* gate_up, const bf16* grad_out, int rows, int width,
                          bf16* grad_gate_up);
  void (*geglu_backward)(ThreadPool&, const bf16* gate_up, const bf16* grad_out, int rows, int width,
                         bf16* grad_gate_up);
  void (*lm_head_backward)(ThreadPool&, const LmHeadBackward&, std::span<const TokenPick>,
                           std::span<const float> grad_logprobs, std::span<float> entropy_rows);
  float (*kept_log_sum)(const float* logits, std::span<const int32_t> kept);
  void (*route)(ThreadPool&, const Route&);
  void (*route_backward)(ThreadPool&, const RouteBackward&);
  void (*permute_backward)(ThreadPool&, const PermuteBackward&);
  void (*combine_backward)(ThreadPool&, const CombineBackward&);
  void (*pack_groups)(ThreadPool&, const PackGroups&);
  void (*k_grouped_gemm)(ThreadPool&, const KGroupedGemm&);
  void (*adamw)(ThreadPool&, const AdamW&);
  void (*adamw_bf16_moments)(ThreadPool&, const BasicAdamW<bf16>&);
  void (*sums_of_squares)(ThreadPool&, const float* values, size_t count, double* sums);
  void (*quantize)(ThreadPool&, const Quantize&);
  void (*quantize_weight)(ThreadPool&, const bf16* weight, int rows, int columns, e4m3* out, e8m0* scales);
  void (*expand)(ThreadPool&, const Expand&);
  void (*round_to_codes)(ThreadPool&, const RoundToCodes&);
  bool (*pack_codes)(ThreadPool&, const PackCodes&);
  void (*layer_norm)(ThreadPool&, const LayerNorm&);
  void (*layer_norm_backward)(ThreadPool&, const LayerNormBackward&);
  void (*gelu)(ThreadPool&, float* x, size_t count);
  void (*gelu_backward)(ThreadPool&, const float* x, size_t count, float* grad);
  void (*bidirectional_attention)(ThreadPool&, const BidirectionalAttention&);
  double (*peak_products)(ThreadPool&, int rounds);
  float (*read_all)(ThreadPool&, const float* values, size_t count);
};

const CpuOperations& avx2_operations();
const CpuOperations& avx512_operations();
const CpuOperations& avx512_bf16_operations();
const CpuOperations& amx_bf16_operations();
// Whether processor, kernel and hypervisor let us use AMX's tiles. Asks the kernel for them, for the whole process.
bool amx_bf16_works();
// A hypervisor may show the tiles and not have them in order: one small product tells. Only where all others agree.
bool amx_bf16_multiplies();

// Splits [0, count) into pieces of `size` and runs `piece(begin, end)` for each.
template <typename Piece>
void for_pieces(ThreadPool& threads, size_t count, size_t size, const Piece& piece) {
  const int tasks = static_cast<int>((count + size - 1) / size);
  threads.run(tasks, [&](int task) {
    const size_t begin = size * task;
    piece(begin, begin + size < count ? begin + size : count);
  });
}

}  // namespace tandem::kernels
