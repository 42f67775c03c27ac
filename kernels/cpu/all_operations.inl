// Everything one instruction set runs. Included once in each cpu/ISA.cpp, compiled with that set's flags.
#include "kernels/cpu/attention.inl"
#include "kernels/cpu/attention_backward.inl"
#include "kernels/cpu/experts.inl"
#include "kernels/cpu/gemm.inl"
#include "kernels/cpu/grouped_gemm.inl"
#include "kernels/cpu/limits.inl"
#include "kernels/cpu/lm_head.inl"
#include "kernels/cpu/operations.h"
#include "kernels/cpu/optimizer.inl"
#include "kernels/cpu/quantize.inl"
#include "kernels/cpu/transformer_ops.inl"

namespace tandem::kernels::TANDEM_ISA {

constexpr CpuOperations kOperations = {
    .pack = pack,
    .pack_transposed = pack_transposed,
    .gemm = gemm,
    .write_pages = write_pages,
    .attention = attention,
    .attention_backward = attention_backward,
    .embed_backward = embed_backward,
    .rms_norm = rms_norm,
    .rms_norm_backward = rms_norm_backward,
    .head_norm = head_norm,
    .head_norm_backward = head_norm_backward,
    .sum_rows = sum_rows,
    .rope = rope,
    .swiglu = swiglu,
    .swiglu_backward = swiglu_backward,
    .add = add,
    .lm_head = lm_head,
    .lm_head_backward = lm_head_backward,
    .route = route,
    .route_backward = route_backward,
    .permute = permute,
    .permute_backward = permute_backward,
    .combine = combine,
    .combine_backward = combine_backward,
    .grouped_gemm = grouped_gemm,
    .pack_groups = pack_groups,
    .k_grouped_gemm = k_grouped_gemm,
    .adamw = adamw,
    .sum_of_squares = sum_of_squares,
    .quantize = quantize,
    .quantize_weight = quantize_weight,
    .expand = expand,
    .peak_products = peak_products,
    .read_all = read_all,
};

}  // namespace tandem::kernels::TANDEM_ISA
