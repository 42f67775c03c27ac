#include "model/host_draw.h"

#include <algorithm>
#include <numeric>

namespace tandem::model {

kernels::Sampled draw_allowed(const Draw& draw, std::span<const float> logits, float log_sum) {
  std::vector<uint64_t> allowed(logits.size() / 64 + 1, 0);
  if (draw.mask)
    draw.mask(allowed);
  else
    std::ranges::fill(allowed, ~uint64_t{0});
  allowed.back() &= (uint64_t{1} << (logits.size() % 64)) - 1;
  if (std::ranges::all_of(allowed, [](uint64_t word) { return word == 0; })) return {.token = -1};
  if (draw.bias.empty())
    return kernels::sample_allowed(logits, allowed, log_sum, draw.sampling, draw.seed, draw.position);
  std::vector<float> biased(logits.begin(), logits.end());
  for (const TokenBias& bias : draw.bias) biased[bias.token] += bias.add;
  auto drawn = kernels::sample_allowed(biased, allowed, log_sum, draw.sampling, draw.seed, draw.position);
  drawn.logprob = logits[drawn.token] - log_sum;
  return drawn;
}

std::vector<TokenLogprob> likeliest_of(std::span<const float> logits, float log_sum, int count) {
  const int vocabulary = static_cast<int>(logits.size());
  std::vector<int32_t> order(logits.size());
  std::iota(order.begin(), order.end(), 0);
  count = std::clamp(count, 1, vocabulary);
  std::ranges::partial_sort(order, order.begin() + count, [&](int32_t a, int32_t b) {
    return logits[a] != logits[b] ? logits[a] > logits[b] : a < b;
  });
  std::vector<TokenLogprob> tops;
  for (int k = 0; k < count; ++k) tops.push_back({order[k], logits[order[k]] - log_sum});
  return tops;
}

}  // namespace tandem::model
