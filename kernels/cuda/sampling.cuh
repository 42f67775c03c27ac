// Choosing tokens from logits as a function of (distribution, seed, position), as kernels/sampling.h does.
//
// One thread a row, sums in double and in the order of kernels/sampling.cpp: where nothing changes the distribution the
// panel first, then the token in it; else over the tokens that may be drawn, ids ascending. Exponentials are our own
// (arithmetic.cuh), so a draw that lies within their error of a token's edge may fall to the neighbour of the one that
// the CPU takes.
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

// Puts `values` in the order of `before`, which tells every two of them apart: a heap, so that it takes no memory.
template <typename Before>
TANDEM_HD void sort_in_place(int32_t* values, int64_t count, const Before& before) {
  const auto sift = [&](int64_t at, int64_t end) {
    for (;;) {
      int64_t last = at;
      for (int64_t child = 2 * at + 1; child <= 2 * at + 2 && child < end; ++child) {
        if (before(values[last], values[child])) last = child;
      }
      if (last == at) return;
      const int32_t value = values[at];
      values[at] = values[last];
      values[last] = value;
      at = last;
    }
  };
  for (int64_t at = count / 2 - 1; at >= 0; --at) sift(at, count);
  for (int64_t end = count - 1; end > 0; --end) {
    const int32_t value = values[0];
    values[0] = values[end];
    values[end] = value;
    sift(0, end);
  }
}

struct SampledRow {
  TandemCudaSample s;

  TANDEM_HD void operator()(int64_t row) const {
    const int64_t panels = panels_of(s.vocabulary);
    const float* sums = s.panel_sums + row * panels * 2;
    const float* logits = s.logits + row * panels * kPanel;
    const bool masked = s.mask_of != nullptr && s.mask_of[row] >= 0;
    int64_t token = 0;
    float scaled = 0;  // what the token's logprob is in the distribution that was drawn from
    if (masked || (s.temperatures[row] != 0 && !is_plain(row))) {
      token = among_some(row, logits, masked, scaled);
    } else {
      float peak = sums[0];
      int64_t best = 0;
      for (int64_t panel = 1; panel < panels; ++panel) {
        if (sums[panel * 2] > peak) {
          peak = sums[panel * 2];
          best = panel;
        }
      }
      if (s.temperatures[row] == 0) {
        token = best * kPanel;
        while (token < s.vocabulary - 1 && logits[token] != peak) ++token;
      } else {
        token = by_panels(logits, sums, peak, uniform_of(s.seeds[row], s.positions[row]));
        scaled = logits[token] - s.log_sum[row];
      }
    }
    s.tokens[row] = static_cast<int32_t>(token);
    s.logprobs[row] = token < 0 ? 0 : logits[token] - s.log_sum[row];
    s.sampling_logprobs[row] = scaled;
  }

 private:
  TANDEM_HD int32_t top_k(int64_t row) const { return s.top_k != nullptr ? s.top_k[row] : 0; }
  TANDEM_HD float top_p(int64_t row) const { return s.top_p != nullptr ? s.top_p[row] : 1.0f; }
  TANDEM_HD float min_p(int64_t row) const { return s.min_p != nullptr ? s.min_p[row] : 0.0f; }
  TANDEM_HD bool is_cut(int64_t row) const { return top_k(row) > 0 || top_p(row) < 1 || min_p(row) > 0; }
  TANDEM_HD bool is_plain(int64_t row) const { return s.temperatures[row] == 1 && !is_cut(row); }

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

  // Of the tokens of the row's mask, or all, at its temperature and cut as it says; -1 where there are none.
  TANDEM_HD int64_t among_some(int64_t row, const float* logits, bool masked, float& scaled) const {
    const int64_t words = pieces(s.vocabulary, 64);
    const uint64_t* mask = masked ? s.masks + s.mask_of[row] * words : nullptr;
    const auto allowed = [&](int64_t i) { return mask == nullptr || (mask[i / 64] >> (i % 64) & 1) != 0; };
    int64_t best = -1;
    for (int64_t i = 0; i < s.vocabulary; ++i) {
      if (allowed(i) && (best < 0 || logits[i] > logits[best])) best = i;
    }
    const float temperature = s.temperatures[row];
    if (best < 0 || temperature == 0) return best;
    const float peak = logits[best];
    // Tokens too far below the peak to be drawn at 53 bits are left out.
    const float floor = peak - 40.0f * temperature;
    int32_t* tokens = static_cast<int32_t*>(s.workspace) + row * s.vocabulary;
    int64_t count = 0;
    for (int64_t i = 0; i < s.vocabulary; ++i) {
      if (logits[i] >= floor && allowed(i)) tokens[count++] = static_cast<int32_t>(i);
    }
    const auto weight_of = [&](int32_t token) {
      return exponential_of(static_cast<double>(logits[token] - peak) / temperature);
    };
    if (is_cut(row)) count = cut(row, logits, tokens, count, weight_of);
    double total = 0;
    for (int64_t i = 0; i < count; ++i) total = total + weight_of(tokens[i]);
    const double u = uniform_of(s.seeds[row], s.positions[row]);
    double sum = 0;
    int64_t at = 0;
    for (; at < count - 1; ++at) {
      sum = sum + weight_of(tokens[at]);
      if (sum > u * total) break;
    }
    scaled = static_cast<float>(natural_log(weight_of(tokens[at]) / total));
    return tokens[at];
  }

  // How many stay of `count` tokens; those first, ascending.
  template <typename Weight>
  TANDEM_HD int64_t cut(int64_t row, const float* logits, int32_t* tokens, int64_t count,
                        const Weight& weight_of) const {
    sort_in_place(tokens, count,
                  [&](int32_t a, int32_t b) { return logits[a] > logits[b] || (logits[a] == logits[b] && a < b); });
    if (top_k(row) > 0 && count > top_k(row)) count = top_k(row);
    if (top_p(row) < 1) {
      double total = 0, sum = 0;
      for (int64_t i = 0; i < count; ++i) total = total + weight_of(tokens[i]);
      int64_t kept = 0;
      while (kept < count && (kept == 0 || sum < top_p(row) * total)) sum = sum + weight_of(tokens[kept++]);
      count = kept;
    }
    if (min_p(row) > 0) {
      while (weight_of(tokens[count - 1]) < min_p(row)) --count;
    }
    sort_in_place(tokens, count, [](int32_t a, int32_t b) { return a < b; });
    return count;
  }
};

inline size_t sample_workspace(int rows, int vocabulary) {
  return rows > 0 && vocabulary > 0 ? static_cast<size_t>(rows) * vocabulary * sizeof(int32_t) : 0;
}

template <typename Execution>
int operate(Execution& execution, const TandemCudaSample& s) {
  if (!s.logits || !s.panel_sums || !s.log_sum || !s.temperatures || !s.seeds || !s.positions || !s.tokens ||
      !s.logprobs || !s.sampling_logprobs || !s.workspace || (s.mask_of && !s.masks)) {
    return kTandemCudaNull;
  }
  if (s.rows < 0 || s.vocabulary <= 0) return kTandemCudaSize;
  if (s.workspace_bytes < sample_workspace(s.rows, s.vocabulary)) return kTandemCudaWorkspace;
  return each_element(execution, s.rows, SampledRow{s});
}

}  // namespace tandem::kernels::cuda
