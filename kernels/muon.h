// Muon (Jordan 2024): an update is the orthogonalized momentum of a matrix.
//
//   g = grad * grad_scale;  m = b m + (1 - b) g;  u = nesterov ? (1 - b) g + b m : m
//   w = w (1 - lr decay) - lr scale orthogonal(u);  weight = bf16(w)
//
// orthogonal(u): X = bf16(u / max(|u|, epsilon)), transposed where it has more rows than columns, then `iterations`
// times A = X X^T, B = b A + c A A, X = a X + B X with a, b, c = 3.4445, -4.775, 2.0315: a polynomial that takes
// singular values from (0, 1] to about 1 (0.68 to 1.13 after five). Products are gemm's, of bf16 summed in fp32; what
// is behind an = is rounded to bf16 once. |u| is the root of sum_of_squares. So bits depend on the matrix alone, not on
// threads.
//
// `scale` is max(1, rows / columns)^(1/2) in Jordan's form, 0.2 max(rows, columns)^(1/2) in Moonshot's (Liu et al.
// 2025), which gives updates the size of AdamW's, so that its learning rates carry over.
//
// For matrices between hidden layers; embeddings, heads, norms and biases are AdamW's. Matrices that lie one above the
// other in one tensor (queries, keys and values) are moved one by one.
//
// Thread safety: as gemm.h.
#pragma once

#include <cstddef>
#include <cstdint>

#include "base/status.h"
#include "kernels/formats/bf16.h"
#include "kernels/stream.h"

namespace tandem::kernels {

enum class MuonScale : uint8_t { kJordan, kLikeAdamW };

struct Muon {
  const float* grad = nullptr;  // [rows][columns], as all below
  float* master = nullptr;
  float* momentum = nullptr;
  bf16* weight = nullptr;
  int rows = 0, columns = 0;  // at least 1
  float grad_scale = 1;
  float learning_rate = 0, beta = 0.95f, weight_decay = 0, epsilon = 1e-7f;
  bool nesterov = true;
  int iterations = 5;  // 1 to 20
  MuonScale scale = MuonScale::kLikeAdamW;
  std::byte* workspace = nullptr;  // muon_workspace(rows, columns) bytes, at a multiple of 64; left as it falls out
};
// Bytes; about 8 for each element and 16 for each of the square of the shorter side.
size_t muon_workspace(int rows, int columns);
// kInvalid names the argument: a null pointer, a side below 1, iterations, a workspace that is not aligned.
Status muon(Stream& stream, const Muon& arguments);

}  // namespace tandem::kernels
