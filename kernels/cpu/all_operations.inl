// Everything one instruction set runs. Included once in each cpu/ISA.cpp, compiled with that set's flags.
#include "kernels/cpu/attention.inl"
#include "kernels/cpu/attention_backward.inl"
#include "kernels/cpu/encoder_ops.inl"
#include "kernels/cpu/experts.inl"
#include "kernels/cpu/gates.inl"
#include "kernels/cpu/gemm.inl"
#include "kernels/cpu/grouped_gemm.inl"
#include "kernels/cpu/limits.inl"
#include "kernels/cpu/lm_head.inl"
#include "kernels/cpu/operations.h"
#include "kernels/cpu/optimizer.inl"
#include "kernels/cpu/quantize.inl"
#include "kernels/cpu/transformer_ops.inl"

namespace tandem::kernels::TANDEM_ISA {

template <typename T>
constexpr ForwardOperations<T> kForward = {
    .pack = pack<T>,
    .pack_transposed = pack_transposed<T>,
    .gemm = gemm<T>,
    .write_pages = write_pages<T>,
    .attention = attention<T>,
    .rms_norm = rms_norm<T>,
    .head_norm = head_norm<T>,
    .rope = rope<T>,
    .swiglu = swiglu<T>,
    .geglu = geglu<T>,
    .add = add<T>,
    .lm_head = lm_head<T>,
    .permute = permute<T>,
    .combine = combine<T>,
    .grouped_gemm = grouped_gemm<T>,
    .batched_gemm = batched_gemm<T>,
};

constexpr CpuOperations kOperations = {
    .in_bf16 = kForward<bf16>,
    .in_float32 = kForward<float>,
    .attention_backward = attention_backward,
    .embed_backward = embed_backward,
    .rms_norm_backward = rms_norm_backward,
    .head_norm_backward = head_norm_backward,
    .sum_rows = sum_rows,
    .swiglu_backward = swiglu_backward,
    .geglu_backward = geglu_backward,
    .lm_head_backward = lm_head_backward,
    .kept_log_sum = kept_log_sum,
    .route = route,
    .route_backward = route_backward,
    .permute_backward = permute_backward,
    .combine_backward = combine_backward,
    .pack_groups = pack_groups,
    .k_grouped_gemm = k_grouped_gemm,
    .adamw = adamw<float>,
    .adamw_bf16_moments = adamw<bf16>,
    .sums_of_squares = sums_of_squares,
    .quantize = quantize,
    .quantize_weight = quantize_weight,
    .expand = expand,
    .round_to_codes = round_to_codes,
    .pack_codes = pack_codes,
    .layer_norm = layer_norm,
    .layer_norm_backward = layer_norm_backward,
    .gelu = gelu,
    .gelu_backward = gelu_backward,
    .bidirectional_attention = bidirectional_attention,
    .peak_products = peak_products,
    .read_all = read_all,
};

}  // namespace tandem::kernels::TANDEM_ISA
