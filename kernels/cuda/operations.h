// The list of operations on GPUs, for code that treats all of them alike: X(operation, Arguments) stands for
//   int tandem_cuda_OPERATION(TandemCudaStream, const TandemCudaARGUMENTS*)
#pragma once

#include "kernels/cuda/tandem_cuda.h"

#define TANDEM_CUDA_OPERATIONS(X)          \
  X(gemm, Gemm)                            \
  X(embed, Embed)                          \
  X(embed_backward, EmbedBackward)         \
  X(rms_norm, RmsNorm)                     \
  X(rms_norm_backward, RmsNormBackward)    \
  X(rope, Rope)                            \
  X(swiglu, Swiglu)                        \
  X(swiglu_backward, SwigluBackward)       \
  X(add, Add)                              \
  X(write_pages, WritePages)               \
  X(attention, Attention)                  \
  X(attention_backward, AttentionBackward) \
  X(lm_head, LmHead)                       \
  X(lm_head_backward, LmHeadBackward)      \
  X(sample, Sample)                        \
  X(adamw, Adamw)                          \
  X(sum_of_squares, SumOfSquares)          \
  X(quantize, Quantize)                    \
  X(quantize_weight, QuantizeWeight)       \
  X(expand, Expand)                        \
  X(route, Route)                          \
  X(route_backward, RouteBackward)         \
  X(group_by_expert, GroupByExpert)        \
  X(permute, Permute)                      \
  X(permute_backward, PermuteBackward)     \
  X(combine, Combine)                      \
  X(combine_backward, CombineBackward)     \
  X(grouped_gemm, GroupedGemm)             \
  X(k_grouped_gemm, KGroupedGemm)

// Those with a function tandem_cuda_OPERATION_workspace.
#define TANDEM_CUDA_WORKSPACES(X) \
  X(rms_norm_backward)            \
  X(attention_backward)           \
  X(lm_head)                      \
  X(lm_head_backward)             \
  X(sum_of_squares)
