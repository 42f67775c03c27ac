#include "kernels/sampling.h"

#include <fmt/format.h>

#include <algorithm>
#include <bit>
#include <cmath>
#include <limits>
#include <numeric>
#include <vector>

#include "base/random.h"

namespace tandem::kernels {

Status check(const SamplingSettings& s) {
  if (!(s.temperature >= 0 && s.temperature <= 100)) {
    return Status::invalid(fmt::format("temperature is {}, expected 0 to 100", s.temperature));
  }
  if (s.top_k < 0) return Status::invalid(fmt::format("top_k is {}, expected 0 (all) or more", s.top_k));
  if (!(s.top_p > 0 && s.top_p <= 1))
    return Status::invalid(fmt::format("top_p is {}, expected above 0 and at most 1", s.top_p));
  if (!(s.min_p >= 0 && s.min_p < 1))
    return Status::invalid(fmt::format("min_p is {}, expected 0 to below 1", s.min_p));
  return {};
}

namespace {

// The first panel with the largest maximum holds the first of the likeliest tokens.
int32_t likeliest(std::span<const float> logits, std::span<const RunningSum> panels) {
  const auto best = std::max_element(panels.begin(), panels.end(),
                                     [](const RunningSum& a, const RunningSum& b) { return a.maximum < b.maximum; });
  const auto first = logits.begin() + (best - panels.begin()) * kPanelColumns;
  const auto found = std::find(first, logits.end(), best->maximum);
  return static_cast<int32_t>((found == logits.end() ? first : found) - logits.begin());
}

// Inverse cumulative distribution in two steps: the panel where the sum passes u, then the token in it.
int32_t draw(std::span<const float> logits, std::span<const RunningSum> panels, double u) {
  float peak = panels[0].maximum;
  for (const RunningSum& panel : panels) peak = std::max(peak, panel.maximum);
  double total = 0;
  for (const RunningSum& panel : panels) total += panel.sum * std::exp(static_cast<double>(panel.maximum - peak));
  double left = u * total;
  size_t chosen = 0, last = 0;
  for (; chosen < panels.size(); ++chosen) {
    const double weight = panels[chosen].sum * std::exp(static_cast<double>(panels[chosen].maximum - peak));
    if (weight > 0) last = chosen;
    if (left < weight) break;
    left -= weight;
  }
  if (chosen == panels.size()) chosen = last;  // rounding at the very end
  const size_t begin = chosen * kPanelColumns, end = std::min(begin + kPanelColumns, logits.size());
  size_t token = begin;
  for (size_t i = begin; i < end; ++i) {
    const double weight = std::exp(static_cast<double>(logits[i] - peak));
    if (weight > 0) token = i;
    if (left < weight) break;
    left -= weight;
  }
  return static_cast<int32_t>(token);
}

// The token where the cumulative weight passes u * total, ids ascending.
int32_t pick(std::span<const int32_t> tokens, std::span<const double> weights, double u) {
  const double total = std::accumulate(weights.begin(), weights.end(), 0.0);
  double sum = 0;
  for (size_t i = 0; i < weights.size(); ++i) {
    sum += weights[i];
    if (sum > u * total) return tokens[i];
  }
  return tokens.back();
}

// Of logits with a NaN or an infinity among them, which are no distribution. Order and weights would be undefined.
Sampled no_number(int32_t token) {
  constexpr float kNaN = std::numeric_limits<float>::quiet_NaN();
  return {token, kNaN, kNaN};
}

// Temperature, then top-k, top-p and min-p, then the draw. `tokens`: those that may be drawn, ascending; then those
// that stayed.
Sampled draw_among(std::span<const float> logits, std::vector<int32_t>& tokens, float peak, float log_sum,
                   const SamplingSettings& settings, double u) {
  if (tokens.empty()) return no_number(0);  // the peak is no number
  const auto weight_of = [&](float logit) {
    return std::exp(static_cast<double>(logit - peak) / settings.temperature);
  };
  if (settings.cuts()) {
    const auto before = [&](int32_t a, int32_t b) {
      return logits[a] > logits[b] || (logits[a] == logits[b] && a < b);
    };
    // Most of a large vocabulary need not be sorted.
    if (settings.top_k > 0 && tokens.size() > static_cast<size_t>(settings.top_k)) {
      std::nth_element(tokens.begin(), tokens.begin() + settings.top_k, tokens.end(), before);
      tokens.resize(settings.top_k);
    }
    std::sort(tokens.begin(), tokens.end(), before);
    if (settings.top_p < 1) {
      double total = 0, sum = 0;
      for (const int32_t token : tokens) total += weight_of(logits[token]);
      size_t kept = 0;
      while (kept < tokens.size() && (kept == 0 || sum < settings.top_p * total))
        sum += weight_of(logits[tokens[kept++]]);
      tokens.resize(kept);
    }
    if (settings.min_p > 0) {
      while (weight_of(logits[tokens.back()]) < settings.min_p) tokens.pop_back();
    }
    std::sort(tokens.begin(), tokens.end());
  }
  std::vector<double> weights(tokens.size());
  std::transform(tokens.begin(), tokens.end(), weights.begin(),
                 [&](int32_t token) { return weight_of(logits[token]); });
  const int32_t token = pick(tokens, weights, u);
  const double total = std::accumulate(weights.begin(), weights.end(), 0.0);
  return {token, logits[token] - log_sum, static_cast<float>(std::log(weight_of(logits[token]) / total))};
}

// Tokens far below the peak cannot be drawn at 53 bits; leaving them out keeps the common case short.
std::vector<int32_t> drawable(std::span<const float> logits, float peak, float temperature) {
  const float floor = peak - 40.0f * temperature;
  std::vector<int32_t> tokens;
  for (size_t i = 0; i < logits.size(); ++i) {
    if (logits[i] >= floor) tokens.push_back(static_cast<int32_t>(i));
  }
  return tokens;
}

}  // namespace

Sampled sample(std::span<const float> logits, std::span<const RunningSum> panels, float log_sum,
               const SamplingSettings& settings, uint64_t seed, uint64_t position) {
  if (!std::isfinite(log_sum)) return no_number(0);
  if (settings.temperature == 0) {
    const int32_t token = likeliest(logits, panels);
    return {token, logits[token] - log_sum, 0};
  }
  const double u = uniform_at(seed, position);
  if (settings.plain()) {
    const int32_t token = draw(logits, panels, u);
    return {token, logits[token] - log_sum, logits[token] - log_sum};
  }
  const float peak = *std::max_element(logits.begin(), logits.end());
  auto tokens = drawable(logits, peak, settings.temperature);
  return draw_among(logits, tokens, peak, log_sum, settings, u);
}

Sampled sample_kept(std::span<const float> logits, std::span<const RunningSum> panels, float log_sum,
                    const SamplingSettings& settings, uint64_t seed, uint64_t position, std::vector<int32_t>& kept) {
  kept.clear();
  if (!settings.cuts() || !std::isfinite(log_sum)) return sample(logits, panels, log_sum, settings, seed, position);
  SamplingSettings bounded = settings;
  bounded.top_k = settings.top_k > 0 ? std::min(settings.top_k, kMostKept) : kMostKept;
  const float peak = *std::max_element(logits.begin(), logits.end());
  kept = drawable(logits, peak, settings.temperature);
  const Sampled sampled = draw_among(logits, kept, peak, log_sum, bounded, uniform_at(seed, position));
  if (kept.size() == logits.size()) kept.clear();
  return sampled;
}

Sampled sample_allowed(std::span<const float> logits, std::span<const uint64_t> allowed, float log_sum,
                       const SamplingSettings& settings, uint64_t seed, uint64_t position) {
  const auto each = [&](const auto& visit) {
    for (size_t w = 0; w < allowed.size(); ++w) {
      for (uint64_t word = allowed[w]; word != 0; word &= word - 1) {
        const size_t token = w * 64 + static_cast<size_t>(std::countr_zero(word));
        if (token < logits.size()) visit(static_cast<int32_t>(token));
      }
    }
  };
  int32_t best = -1, first = -1;
  each([&](int32_t token) {
    if (first < 0) first = token;
    if (best < 0 || logits[token] > logits[best]) best = token;
  });
  if (!std::isfinite(log_sum)) return no_number(first);
  const float peak = logits[best];
  if (settings.temperature == 0) return {best, peak - log_sum, 0};
  const float floor = peak - 40.0f * settings.temperature;
  std::vector<int32_t> tokens;
  each([&](int32_t token) {
    if (logits[token] >= floor) tokens.push_back(token);
  });
  return draw_among(logits, tokens, peak, log_sum, settings, uniform_at(seed, position));
}

}  // namespace tandem::kernels
