// The list of operations on GPUs, for code that treats all of them alike: X(operation, Arguments) stands for
//   int tandem_cuda_OPERATION(TandemCudaStream, const TandemCudaARGUMENTS*)
#pragma once

#include "kernels/cuda/tandem_cuda.h"

#define TANDEM_CUDA_OPERATIONS(X)                    \
  X(gemm, Gemm)                                      \
  X(gemm_float, GemmFloat)                           \
  X(batched_gemm, BatchedGemm)                       \
  X(batched_gemm_float, BatchedGemmFloat)            \
  X(grouped_gemm, GroupedGemm)                       \
  X(grouped_gemm_float, GroupedGemmFloat)            \
  X(embed, Embed)                                    \
  X(embed_float, EmbedFloat)                         \
  X(rms_norm, RmsNorm)                               \
  X(rms_norm_float, RmsNormFloat)                    \
  X(head_norm, HeadNorm)                             \
  X(head_norm_float, HeadNormFloat)                  \
  X(rope, Rope)                                      \
  X(rope_float, RopeFloat)                           \
  X(swiglu, Swiglu)                                  \
  X(swiglu_float, SwigluFloat)                       \
  X(geglu, Geglu)                                    \
  X(geglu_float, GegluFloat)                         \
  X(add, Add)                                        \
  X(add_float, AddFloat)                             \
  X(place_columns, PlaceColumns)                     \
  X(place_columns_float, PlaceColumnsFloat)          \
  X(sum_parts, SumParts)                             \
  X(sum_parts_float, SumPartsFloat)                  \
  X(write_pages, WritePages)                         \
  X(write_pages_float, WritePagesFloat)              \
  X(attention, Attention)                            \
  X(attention_float, AttentionFloat)                 \
  X(lm_head, LmHead)                                 \
  X(lm_head_float, LmHeadFloat)                      \
  X(permute, Permute)                                \
  X(permute_float, PermuteFloat)                     \
  X(combine, Combine)                                \
  X(combine_float, CombineFloat)                     \
  X(embed_backward, EmbedBackward)                   \
  X(rms_norm_backward, RmsNormBackward)              \
  X(head_norm_backward, HeadNormBackward)            \
  X(sum_rows, SumRows)                               \
  X(swiglu_backward, SwigluBackward)                 \
  X(geglu_backward, GegluBackward)                   \
  X(attention_backward, AttentionBackward)           \
  X(layer_norm, LayerNorm)                           \
  X(layer_norm_backward, LayerNormBackward)          \
  X(gelu, Gelu)                                      \
  X(gelu_backward, GeluBackward)                     \
  X(bidirectional_attention, BidirectionalAttention) \
  X(lm_head_backward, LmHeadBackward)                \
  X(sample, Sample)                                  \
  X(take_tokens, TakeTokens)                         \
  X(put_rows, PutRows)                               \
  X(adamw, Adamw)                                    \
  X(muon, Muon)                                      \
  X(sum_of_squares, SumOfSquares)                    \
  X(digest, Digest)                                  \
  X(quantize, Quantize)                              \
  X(quantize_weight, QuantizeWeight)                 \
  X(expand, Expand)                                  \
  X(round_to_codes, RoundToCodes)                    \
  X(tensor_gemm, TensorGemm)                         \
  X(tensor_gemm_fp8, TensorGemmFp8)                  \
  X(mxfp8_gemm, Mxfp8Gemm)                           \
  X(mxfp8_grouped_gemm, Mxfp8GroupedGemm)            \
  X(norm_quantize, NormQuantize)                     \
  X(gate_quantize, GateQuantize)                     \
  X(route, Route)                                    \
  X(route_backward, RouteBackward)                   \
  X(group_by_expert, GroupByExpert)                  \
  X(permute_backward, PermuteBackward)               \
  X(combine_backward, CombineBackward)               \
  X(k_grouped_gemm, KGroupedGemm)

// Operations with a function tandem_cuda_OPERATION_workspace.
#define TANDEM_CUDA_WORKSPACES(X) \
  X(rms_norm_backward)            \
  X(head_norm_backward)           \
  X(sum_rows)                     \
  X(attention_backward)           \
  X(layer_norm_backward)          \
  X(lm_head)                      \
  X(lm_head_backward)             \
  X(sample)                       \
  X(muon)                         \
  X(sum_of_squares)               \
  X(digest)
