// Choosing tokens from logits as a function of (distribution, seed, position), as kernels/sampling.h does.
//
// Sums are in double and in the order of kernels/sampling.cpp: where nothing changes the distribution the panel first,
// then the token in it; else over the tokens that may be drawn, ids ascending. Exponentials are our own
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

// A block a row. What does not depend on an order is found by all of its threads: the peak, the tokens that may be
// drawn, the weight of each. What does, the sums, is one thread's.
struct SampledRows {
  static constexpr int kThreads = 256;
  struct Shared {
    float value[kThreads];
    int64_t place[kThreads];  // of a thread's largest; then where its tokens begin
    float peak;
    int64_t best, count;
  };
  using Private = Nothing;
  TandemCudaSample s;

  TANDEM_HD bool run(int64_t row, int phase, int thread, Shared& shared, Private&) const {
    const Row r = of(row);
    switch (phase) {
      case 0: {  // the largest of this thread's share, the first where several are
        const int64_t begin = r.places() * thread / kThreads, end = r.places() * (thread + 1) / kThreads;
        int64_t best = -1;
        for (int64_t i = begin; i < end; ++i) {
          if (r.allowed(i) && (best < 0 || r.value(i) > r.value(best))) best = i;
        }
        shared.place[thread] = best;
        shared.value[thread] = best < 0 ? 0.0f : r.value(best);
        return true;
      }
      case 1:
        if (thread == 0) {
          shared.best = -1;
          for (int i = 0; i < kThreads; ++i) {
            if (shared.place[i] < 0 || (shared.best >= 0 && !(shared.value[i] > shared.peak))) continue;
            shared.best = shared.place[i];
            shared.peak = shared.value[i];
          }
        }
        return true;
      case 2:
        if (r.by_panels) {
          for (int64_t panel = thread; panel < r.panels; panel += kThreads)
            r.weights[panel] = r.sums[panel * 2 + 1] * weight(r.sums[panel * 2], shared.peak);
        } else if (shared.best >= 0 && r.temperature != 0) {
          // Tokens too far below the peak to be drawn at 53 bits are left out.
          int64_t count = 0;
          r.each_of(thread, shared.peak, [&](int64_t) { ++count; });
          shared.place[thread] = count;
        }
        return true;
      case 3:
        if (thread == 0 && !r.by_panels) {
          int64_t before = 0;
          for (int i = 0; i < kThreads; ++i) {
            const int64_t own = shared.place[i];
            shared.place[i] = before;
            before += own;
          }
          shared.count = before;
        }
        return true;
      case 4:
        if (!r.by_panels && shared.best >= 0 && r.temperature != 0) {
          int64_t at = shared.place[thread];
          r.each_of(thread, shared.peak, [&](int64_t i) {
            r.tokens[at] = static_cast<int32_t>(i);
            r.weights[at++] = r.weight_of(i, shared.peak);
          });
        }
        return true;
      default:
        if (thread == 0) finish(r, shared);
        return false;
    }
  }

 private:
  struct Row {
    const float* sums;
    const float* logits;
    const uint64_t* mask;
    int32_t* tokens;  // that may be drawn, ascending
    double* weights;  // of them, or of panels
    int64_t row, panels;
    int vocabulary, top_k;
    float temperature, top_p, min_p;
    bool by_panels;  // nothing changes the distribution: panels first, then a token in one

    TANDEM_HD bool is_cut() const { return top_k > 0 || top_p < 1 || min_p > 0; }
    TANDEM_HD int64_t places() const { return by_panels ? panels : vocabulary; }
    TANDEM_HD float value(int64_t i) const { return by_panels ? sums[i * 2] : logits[i]; }
    TANDEM_HD bool allowed(int64_t i) const { return mask == nullptr || (mask[i / 64] >> (i % 64) & 1) != 0; }
    TANDEM_HD double weight_of(int64_t token, float peak) const {
      return exponential_of(static_cast<double>(logits[token] - peak) / temperature);
    }
    template <typename Each>
    TANDEM_HD void each_of(int thread, float peak, const Each& each) const {
      const int64_t words = pieces(vocabulary, 64);
      const float floor = peak - 40.0f * temperature;
      const int64_t begin = words * thread / kThreads * 64, past = words * (thread + 1) / kThreads * 64;
      for (int64_t i = begin; i < past && i < vocabulary; ++i) {
        if (logits[i] >= floor && allowed(i)) each(i);
      }
    }
  };

  TANDEM_HD Row of(int64_t row) const {
    const int64_t panels = panels_of(s.vocabulary), words = pieces(s.vocabulary, 64);
    const bool masked = s.mask_of != nullptr && s.mask_of[row] >= 0;
    char* const memory = static_cast<char*>(s.workspace);
    Row r{.sums = s.panel_sums + row * panels * 2,
          .logits = s.logits + row * panels * kPanel,
          .mask = masked ? s.masks + s.mask_of[row] * words : nullptr,
          .tokens = reinterpret_cast<int32_t*>(memory + s.rows * words * 64 * sizeof(double)) + row * words * 64,
          .weights = reinterpret_cast<double*>(memory) + row * words * 64,
          .row = row,
          .panels = panels,
          .vocabulary = s.vocabulary,
          .top_k = s.top_k != nullptr ? s.top_k[row] : 0,
          .temperature = s.temperatures[row],
          .top_p = s.top_p != nullptr ? s.top_p[row] : 1.0f,
          .min_p = s.min_p != nullptr ? s.min_p[row] : 0.0f,
          .by_panels = false};
    r.by_panels = !masked && (r.temperature == 0 || (r.temperature == 1 && !r.is_cut()));
    return r;
  }

  TANDEM_HD static double weight(float x, float peak) { return exponential_of(static_cast<double>(x - peak)); }

  TANDEM_HD void finish(const Row& r, const Shared& shared) const {
    int64_t token = shared.best;
    int64_t kept = -1;  // of r.tokens; below 0: all of the vocabulary
    float scaled = 0;   // what the token's logprob is in the distribution that was drawn from
    const float log_sum = s.log_sum[r.row];
    // A NaN or an infinity among the logits: they are no distribution, and their order is undefined.
    const bool draws_of_none = !r.by_panels && r.temperature != 0 && shared.count == 0;
    if (token >= 0 && (!(log_sum - log_sum == 0) || draws_of_none)) {
      token = 0;
      while (token < r.vocabulary - 1 && !r.allowed(token)) ++token;
      if (s.kept) record(r, kept);
      s.tokens[r.row] = static_cast<int32_t>(token);
      s.logprobs[r.row] = s.sampling_logprobs[r.row] = not_a_number();
      return;
    }
    if (r.by_panels && r.temperature == 0) {
      token = shared.best * kPanel;
      while (token < r.vocabulary - 1 && r.logits[token] != shared.peak) ++token;
    } else if (r.by_panels) {
      token = by_panels(r, shared.peak);
      scaled = r.logits[token] - s.log_sum[r.row];
    } else if (token >= 0 && r.temperature != 0) {
      token = among_some(r, shared, scaled, kept);
    }
    if (s.kept) record(r, kept);
    s.tokens[r.row] = static_cast<int32_t>(token);
    s.logprobs[r.row] = token < 0 ? 0 : r.logits[token] - s.log_sum[r.row];
    s.sampling_logprobs[r.row] = scaled;
  }

  TANDEM_HD void record(const Row& r, int64_t kept) const {
    const int64_t words = pieces(r.vocabulary, 64);
    uint64_t* const bits = s.kept + r.row * words;
    for (int64_t word = 0; word < words; ++word) bits[word] = kept < 0 ? ~uint64_t{0} : 0;
    for (int64_t i = 0; i < kept; ++i) bits[r.tokens[i] / 64] |= uint64_t{1} << (r.tokens[i] % 64);
  }

  TANDEM_HD int64_t by_panels(const Row& r, float peak) const {
    double total = 0;
    TANDEM_UNROLL_8
    for (int64_t panel = 0; panel < r.panels; ++panel) total = total + r.weights[panel];
    double left = uniform_of(s.seeds[r.row], s.positions[r.row]) * total;
    int64_t chosen = 0, last = 0;
    for (; chosen < r.panels; ++chosen) {
      const double of_panel = r.weights[chosen];
      if (of_panel > 0) last = chosen;
      if (left < of_panel) break;
      left = left - of_panel;
    }
    if (chosen == r.panels) chosen = last;  // rounding at the very end
    const int64_t begin = chosen * kPanel;
    const int64_t end = begin + kPanel < r.vocabulary ? begin + kPanel : r.vocabulary;
    int64_t token = begin;
    for (int64_t i = begin; i < end; ++i) {
      const double of_token = weight(r.logits[i], peak);
      if (of_token > 0) token = i;
      if (left < of_token) break;
      left = left - of_token;
    }
    return token;
  }

  // Draws among the tokens that may be drawn, at the row's temperature and cut as it says.
  TANDEM_HD int64_t among_some(const Row& r, const Shared& shared, float& scaled, int64_t& kept) const {
    int64_t count = shared.count;
    if (r.is_cut()) {
      count = kept = cut(r, shared.peak, count);
      for (int64_t i = 0; i < count; ++i) r.weights[i] = r.weight_of(r.tokens[i], shared.peak);
    }
    double total = 0;
    TANDEM_UNROLL_8
    for (int64_t i = 0; i < count; ++i) total = total + r.weights[i];
    const double u = uniform_of(s.seeds[r.row], s.positions[r.row]);
    double sum = 0;
    int64_t at = 0;
    for (; at < count - 1; ++at) {
      sum = sum + r.weights[at];
      if (sum > u * total) break;
    }
    scaled = static_cast<float>(natural_log(r.weights[at] / total));
    return r.tokens[at];
  }

  // How many stay of `count` tokens; those first, ascending.
  TANDEM_HD int64_t cut(const Row& r, float peak, int64_t count) const {
    const float* const logits = r.logits;
    int32_t* const tokens = r.tokens;
    sort_in_place(tokens, count,
                  [&](int32_t a, int32_t b) { return logits[a] > logits[b] || (logits[a] == logits[b] && a < b); });
    if (r.top_k > 0 && count > r.top_k) count = r.top_k;
    if (r.top_p < 1) {
      double total = 0, sum = 0;
      for (int64_t i = 0; i < count; ++i) total = total + r.weight_of(tokens[i], peak);
      int64_t kept = 0;
      while (kept < count && (kept == 0 || sum < r.top_p * total)) sum = sum + r.weight_of(tokens[kept++], peak);
      count = kept;
    }
    if (r.min_p > 0) {
      while (r.weight_of(tokens[count - 1], peak) < r.min_p) --count;
    }
    sort_in_place(tokens, count, [](int32_t a, int32_t b) { return a < b; });
    return count;
  }
};

// The logprob among the kept tokens of a row whose logits are stored: the sums of lm_head, of these alone.
struct KeptPanel {
  TandemCudaSample s;
  PanelSum* sums;  // [rows][panels]
  TANDEM_HD void operator()(int64_t i) const {
    const int first = static_cast<int>(i % panels_of(s.vocabulary)) * kPanel;
    float logits[kPanel];
    for (int column = 0; column < kPanel; ++column)
      logits[column] =
          first + column < s.vocabulary && keeps(s.kept[i], column) ? s.logits[i * kPanel + column] : -infinity();
    sums[i] = sum_of_panel(logits, first);
  }
};
struct KeptLogprob {
  TandemCudaSample s;
  const PanelSum* slabs;  // [rows][slabs]
  TANDEM_HD void operator()(int64_t row) const {
    const int64_t count = slabs_of(s.vocabulary);
    PanelSum total = slabs[row * count];
    for (int64_t slab = 1; slab < count; ++slab) join(total, slabs[row * count + slab]);
    const int32_t token = s.tokens[row];
    if (token < 0) return;
    s.logprobs[row] = s.logits[row * panels_of(s.vocabulary) * kPanel + token] - log_of_sum(total.maximum, total.sum);
  }
};

inline size_t sample_workspace(int rows, int vocabulary) {
  if (rows <= 0 || vocabulary <= 0) return 0;
  return static_cast<size_t>(rows) * pieces(vocabulary, 64) * 64 * (sizeof(double) + sizeof(int32_t));
}

template <typename Execution>
int operate(Execution& execution, const TandemCudaSample& s) {
  if (!s.logits || !s.panel_sums || !s.log_sum || !s.temperatures || !s.seeds || !s.positions || !s.tokens ||
      !s.logprobs || !s.sampling_logprobs || !s.workspace || (s.mask_of && !s.masks)) {
    return kTandemCudaNull;
  }
  if (s.rows < 0 || s.vocabulary <= 0) return kTandemCudaSize;
  if (s.workspace_bytes < sample_workspace(s.rows, s.vocabulary)) return kTandemCudaWorkspace;
  if (!s.kept) return start(execution, SampledRows{s}, s.rows);
  // The memory of candidates, which are not needed then: they take more than sums.
  PanelSum* const sums = static_cast<PanelSum*>(s.workspace);
  PanelSum* const slabs = sums + s.rows * panels_of(s.vocabulary);
  return in_order(
      [&] { return start(execution, SampledRows{s}, s.rows); },
      [&] {
        return each_element(execution, s.rows * panels_of(s.vocabulary), KeptPanel{s, sums});
      },
      [&] {
        return each_element(execution, s.rows * slabs_of(s.vocabulary), JoinedSlab{sums, slabs, s.vocabulary});
      },
      [&] {
        return each_element(execution, s.rows, KeptLogprob{s, slabs});
      });
}

}  // namespace tandem::kernels::cuda
