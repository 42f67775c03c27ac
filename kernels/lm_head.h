// From the last hidden state to log-probabilities, without ever storing the logits of a batch.
//
// logit[v] = fp32 sum of gemm.h, times the row's logit scale where one is given: of a policy at temperature T it is
// 1 / T, and all that follows is of that policy. The vocabulary is taken in tiles of kPanelColumns columns in order,
// each joined to the running (maximum, sum of e^(logit - maximum)) of its row; logsumexp = maximum + ln(sum), the
// logarithm in double. logprob of token t = logit[t] - logsumexp. The sampler and the trainer call this same function.
//
// A policy that draws from a few tokens alone (top-k, top-p, min-p) has kept tokens: the logits of all others count as
// -infinity, so that the distribution is that of the kept ones, added up in the same order. Where all are kept no bit
// is another one.
#pragma once

#include <cmath>
#include <cstddef>
#include <cstdint>
#include <span>

#include "base/status.h"
#include "kernels/gemm.h"

namespace tandem::kernels {

// A maximum, and the sum of e^(x - maximum).
struct RunningSum {
  float maximum = -INFINITY;
  float sum = 0;
};

template <typename T>
struct BasicLmHead {
  const T* hidden = nullptr;  // [rows][width]
  const T* head = nullptr;    // packed [vocabulary][width]
  int rows = 0, width = 0, vocabulary = 0;
  float* logits = nullptr;    // [rows][padded_vocabulary(vocabulary)], or null: not stored
  float* log_sum = nullptr;   // [rows]
  int32_t* argmax = nullptr;  // [rows], or null; ties go to the lowest id
  RunningSum* panel_sums =
      nullptr;  // [rows][padded_vocabulary / kPanelColumns], or null: of each panel, for the sampler
  const float* logit_scales = nullptr;  // [rows], above 0; or null: 1
  // [rows][padded_vocabulary / 64], a bit for each token from the lowest of a word on, and at least one in each row; or
  // null: all are kept. Goes without `logits` and `panel_sums`. Panels that no row of a tile keeps cost nothing.
  const uint64_t* kept = nullptr;
};
static_assert(kPanelColumns == 64, "a word of kept tokens is a panel");
using LmHead = BasicLmHead<bf16>;
inline size_t padded_vocabulary(int vocabulary) {
  return (static_cast<size_t>(vocabulary) + kPanelColumns - 1) / kPanelColumns * kPanelColumns;
}
// A (row, token) whose log-probability is wanted.
struct TokenPick {
  int32_t row = 0;
  int32_t token = 0;
};
// `logprobs[i]` is that of picks[i]; picks sorted by row. Null spans leave it out.
Status lm_head(Stream& stream, const LmHead& arguments, std::span<const TokenPick> picks, std::span<float> logprobs);
Status lm_head(Stream& stream, const BasicLmHead<float>& arguments, std::span<const TokenPick> picks,
               std::span<float> logprobs);

// The log_sum of one row, as lm_head has stored it, where these tokens alone are kept, to the bit. `kept` is
// ascending, not empty, and inside the row: kInvalid.
Result<float> kept_log_sum(const Stream& stream, std::span<const float> logits, std::span<const int32_t> kept);

// The logit scale of a policy at a temperature. At 0 the likeliest token is taken, and logprobs are those at 1.
inline float logit_scale_at(float temperature) { return temperature > 0 ? 1.0f / temperature : 1.0f; }

struct LmHeadBackward {
  const bf16* hidden = nullptr;
  const bf16* head = nullptr;             // packed [vocabulary][width]
  const bf16* head_transposed = nullptr;  // packed for dgrad: pack_transposed of [vocabulary][width]
  const float* log_sum = nullptr;         // [rows], from the forward pass
  int rows = 0, width = 0, vocabulary = 0;
  float* grad_hidden = nullptr;         // [rows][width], added to
  float* grad_head = nullptr;           // [vocabulary][width], added to; or null: not computed
  const float* logit_scales = nullptr;  // those of the forward pass
  const uint64_t* kept = nullptr;       // those of the forward pass; the gradient of other tokens' logits is 0
};
// `grad_logprobs[i]` is dLoss / dlogprob of picks[i]. `entropy_rows`, when not empty, gets the entropy of each row in
// nats.
Status lm_head_backward(Stream& stream, const LmHeadBackward& arguments, std::span<const TokenPick> picks,
                        std::span<const float> grad_logprobs, std::span<float> entropy_rows);

}  // namespace tandem::kernels
