// Choosing tokens from logits as a function of (distribution, seed, position): kernels/sampling.h without truncation.
//
// One thread a row, sums in double and in the order of kernels/sampling.cpp: at temperature 1 the panel first, then the
// token in it; at others over all tokens, ids ascending. Exponentials are our own (arithmetic.cuh), so a draw that lies
// within their error of a token's edge may fall to the neighbour of the one that the CPU takes.
#pragma once

#include "kernels/cuda/lm_head.cuh"

namespace tandem::kernels::cuda {

// Philox4x32-10 of base/random.h, of which a draw uses the first two words.
TANDEM_HD double uniform_of(uint64_t key, uint64_t counter) {
  uint32_t x[4] = {static_cast<uint32_t>(counter), static_cast<uint32_t>(counter >> 32), 0, 0};
  uint32_t key0 = static_cast<uint32_t>(key), key1 = static_cast<uint32_t>(key >> 32);
  for (int round = 0; round < 10; ++round) {
    const uint64_t product0 = uint64_t{0xD2511F53} * x[0];
    const uint64_t product1 = uint64_t{0xCD9E8D57} * x[2];
    x[0] = static_cast<uint32_t>(product1 >> 32) ^ x[1] ^ key0;
    x[1] = static_cast<uint32_t>(product1);
    x[2] = static_cast<uint32_t>(product0 >> 32) ^ x[3] ^ key1;
    x[3] = static_cast<uint32_t>(product0);
    key0 += 0x9E3779B9u;
    key1 += 0xBB67AE85u;
  }
  return static_cast<double>(((static_cast<uint64_t>(x[1]) << 32) | x[0]) >> 11) * 0x1.0p-53;
}

struct SampledRow {
  TandemCudaSample s;

  TANDEM_HD void operator()(int64_t row) const {
    const int64_t panels = panels_of(s.vocabulary);
    const float* sums = s.panel_sums + row * panels * 2;
    const float* logits = s.logits + row * panels * kPanel;
    const float temperature = s.temperatures[row];
    float peak = sums[0];
    int64_t best = 0;
    for (int64_t panel = 1; panel < panels; ++panel) {
      if (sums[panel * 2] > peak) {
        peak = sums[panel * 2];
        best = panel;
      }
    }
    int64_t token = 0;
    float scaled = 0;  // what the token's logprob is under the temperature
    if (temperature == 0) {
      token = best * kPanel;
      while (token < s.vocabulary - 1 && logits[token] != peak) ++token;
    } else {
      const double u = uniform_of(s.seeds[row], s.positions[row]);
      token = temperature == 1 ? by_panels(logits, sums, peak, u) : by_tokens(logits, peak, temperature, u, scaled);
      if (temperature == 1) scaled = logits[token] - s.log_sum[row];
    }
    s.tokens[row] = static_cast<int32_t>(token);
    s.logprobs[row] = logits[token] - s.log_sum[row];
    s.sampling_logprobs[row] = scaled;
  }

 private:
  TANDEM_HD static double weight(float x, float peak) { return exponential_of(static_cast<double>(x - peak)); }

  TANDEM_HD int64_t by_panels(const float* logits, const float* sums, float peak, double u) const {
    const int64_t panels = panels_of(s.vocabulary);
    double total = 0;
    for (int64_t panel = 0; panel < panels; ++panel) {
      total = total + sums[panel * 2 + 1] * weight(sums[panel * 2], peak);
    }
    double left = u * total;
    int64_t chosen = 0, last = 0;
    for (; chosen < panels; ++chosen) {
      const double of_panel = sums[chosen * 2 + 1] * weight(sums[chosen * 2], peak);
      if (of_panel > 0) last = chosen;
      if (left < of_panel) break;
      left = left - of_panel;
    }
    if (chosen == panels) chosen = last;  // rounding at the very end
    const int64_t begin = chosen * kPanel;
    const int64_t end = begin + kPanel < s.vocabulary ? begin + kPanel : s.vocabulary;
    int64_t token = begin;
    for (int64_t i = begin; i < end; ++i) {
      const double of_token = weight(logits[i], peak);
      if (of_token > 0) token = i;
      if (left < of_token) break;
      left = left - of_token;
    }
    return token;
  }

  // Tokens too far below the peak to be drawn at 53 bits are left out.
  TANDEM_HD int64_t by_tokens(const float* logits, float peak, float temperature, double u, float& scaled) const {
    const float floor = peak - 40.0f * temperature;
    const auto weight_of = [&](float logit) {
      return logit >= floor ? exponential_of(static_cast<double>(logit - peak) / temperature) : 0.0;
    };
    double total = 0;
    for (int64_t i = 0; i < s.vocabulary; ++i) total = total + weight_of(logits[i]);
    double sum = 0;
    int64_t token = 0;
    for (int64_t i = 0; i < s.vocabulary && sum <= u * total; ++i) {
      const double of_token = weight_of(logits[i]);
      if (of_token > 0) token = i;
      sum = sum + of_token;
    }
    scaled = static_cast<float>(natural_log(weight_of(logits[token]) / total));
    return token;
  }
};

template <typename Execution>
int operate(Execution& execution, const TandemCudaSample& s) {
  if (!s.logits || !s.panel_sums || !s.log_sum || !s.temperatures || !s.seeds || !s.positions || !s.tokens ||
      !s.logprobs || !s.sampling_logprobs) {
    return kTandemCudaNull;
  }
  if (s.rows < 0 || s.vocabulary <= 0) return kTandemCudaSize;
  return each_element(execution, s.rows, SampledRow{s});
}

}  // namespace tandem::kernels::cuda
