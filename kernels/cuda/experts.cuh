// Routing, the way to the experts and back, forward and backward: the formulas and orders of kernels/experts.h. A row's
// routing is one thread's; what moves rows is one thread an element.
#pragma once

#include "kernels/cuda/gates.cuh"
#include "kernels/cuda/rows.cuh"

namespace tandem::kernels::cuda {

// What the sum of sigmoids is at least taken for.
constexpr float kLeastSum = 1e-20f;

// The scores of one row: e^(logit - the largest) with their sum, or sigmoids with the sum 1.
struct RowScores {
  const float* logits;
  float peak, total;
  bool softmax;

  TANDEM_HD RowScores(const float* row, int experts, bool is_softmax) : logits(row), softmax(is_softmax) {
    peak = logits[0];
    total = 1;
    if (!softmax) return;
    for (int i = 1; i < experts; ++i) peak = peak < logits[i] ? logits[i] : peak;
    float lanes[kLanes] = {};
    for (int i = 0; i < experts; ++i) lanes[i % kLanes] = lanes[i % kLanes] + exponential(logits[i] - peak);
    total = sum_of_lanes(lanes);
  }
  TANDEM_HD float term(int expert) const {
    return softmax ? exponential(logits[expert] - peak) : sigmoid(logits[expert]);
  }
};

constexpr int kMostGroups = 64;

struct RouteRow {
  TandemCudaRoute r;

  TANDEM_HD void operator()(int64_t row) const {
    const RowScores scores(r.logits + row * r.experts, r.experts, !r.sigmoid);
    int32_t* ids = r.ids + row * r.top_k;
    float* weights = r.weights + row * r.top_k;
    const uint64_t groups = r.top_k_groups < r.groups ? groups_of(scores) : ~uint64_t{0};
    for (int rank = 0; rank < r.top_k; ++rank) ids[rank] = largest_left(scores, groups, ids, rank);
    if (r.given) take_given(row, ids);
    float top_k_sum = 0;
    for (int rank = 0; rank < r.top_k; ++rank) {
      weights[rank] = scores.term(ids[rank]) / scores.total;
      top_k_sum = top_k_sum + weights[rank];
    }
    if (r.sigmoid) top_k_sum = top_k_sum + kLeastSum;
    for (int rank = 0; rank < r.top_k; ++rank) {
      if (r.normalise) weights[rank] = weights[rank] / top_k_sum;
      weights[rank] = weights[rank] * r.scale;
    }
  }

 private:
  TANDEM_HD float key(const RowScores& scores, int expert) const {
    float value = r.sigmoid ? scores.term(expert) : scores.logits[expert];
    if (r.sigmoid && r.bias) value = value + r.bias[expert];
    return value != value ? -infinity() : value;
  }
  // In place of what was chosen; a row without some keeps its choice.
  TANDEM_HD void take_given(int64_t row, int32_t* ids) const {
    const int32_t* given = r.given + row * r.top_k;
    bool takes = true, same = true;
    for (int rank = 0; rank < r.top_k; ++rank) {
      takes = takes && given[rank] >= 0 && given[rank] < r.experts;
      bool chosen = false;
      for (int i = 0; i < r.top_k; ++i) chosen = chosen || ids[i] == given[rank];
      same = same && chosen;
    }
    if (r.changed) r.changed[row] = takes && !same;
    for (int rank = 0; takes && rank < r.top_k; ++rank) ids[rank] = given[rank];
  }
  // A bit for each group whose two largest keys have one of the largest sums, ties to the first.
  TANDEM_HD uint64_t groups_of(const RowScores& scores) const {
    const int size = r.experts / r.groups;
    float sums[kMostGroups];
    for (int group = 0; group < r.groups; ++group) {
      float first = -infinity(), second = -infinity();
      for (int expert = group * size; expert < (group + 1) * size; ++expert) {
        const float value = key(scores, expert);
        second = larger(second, value < first ? value : first);
        first = larger(first, value);
      }
      const float sum = first + second;
      sums[group] = sum != sum ? -infinity() : sum;
    }
    uint64_t chosen = 0;
    for (int rank = 0; rank < r.top_k_groups; ++rank) {
      int best = -1;
      for (int group = 0; group < r.groups; ++group) {
        const bool free = (chosen >> group & 1) == 0;
        if (free && (best < 0 || sums[group] > sums[best])) best = group;
      }
      chosen |= uint64_t{1} << best;
    }
    return chosen;
  }
  // The first of the largest in these groups that the ranks before have not taken.
  TANDEM_HD int largest_left(const RowScores& scores, uint64_t groups, const int32_t* taken, int rank) const {
    const int size = r.experts / r.groups;
    int best = -1;
    float largest = 0;
    for (int expert = 0; expert < r.experts; ++expert) {
      bool free = (groups >> (r.groups == 1 ? 0 : expert / size) & 1) != 0;
      for (int i = 0; i < rank; ++i) free = free && taken[i] != expert;
      if (!free) continue;
      const float value = key(scores, expert);
      if (best >= 0 && !(value > largest)) continue;
      best = expert;
      largest = value;
    }
    return best;
  }
};
inline int check_route(int rows, int experts, int top_k) {
  if (rows < 0) return kTandemCudaSize;
  return experts >= 1 && top_k >= 1 && top_k <= experts ? kTandemCudaOk : kTandemCudaShape;
}
// Groups are equal parts of two experts at least, and hold as many as are chosen.
inline bool groups_fit(const TandemCudaRoute& r) {
  if (r.groups == 1) return r.top_k_groups == 1;
  if (!r.sigmoid || r.groups < 1 || r.groups > kMostGroups || r.experts % r.groups != 0) return false;
  const int size = r.experts / r.groups;
  return size >= 2 && r.top_k_groups >= 1 && r.top_k_groups <= r.groups && r.top_k <= r.top_k_groups * size;
}
template <typename Execution>
int operate(Execution& execution, const TandemCudaRoute& arguments) {
  TandemCudaRoute r = arguments;
  if (r.groups == 0) r.groups = r.top_k_groups = 1;
  if (!r.logits || !r.ids || !r.weights) return kTandemCudaNull;
  if (const int code = check_route(r.rows, r.experts, r.top_k)) return code;
  if ((r.bias && !r.sigmoid) || !groups_fit(r)) return kTandemCudaShape;
  return each_element(execution, r.rows, RouteRow{r});
}

struct RouteBackwardRow {
  TandemCudaRouteBackward r;

  TANDEM_HD void operator()(int64_t row) const {
    const RowScores scores(r.logits + row * r.experts, r.experts, !r.sigmoid);
    const int32_t* ids = r.ids + row * r.top_k;
    const float* weights = r.weights + row * r.top_k;
    const float* grads = r.grad_weights + row * r.top_k;
    uint16_t* target = r.grad_logits + row * r.grad_stride;
    float mean = 0;
    for (int rank = 0; rank < r.top_k; ++rank) mean = fmaf(weights[rank], grads[rank], mean);
    for (int64_t i = 0; i < r.grad_stride; ++i) target[i] = 0;
    if (r.sigmoid) return through_sigmoids(scores, ids, grads, mean, target);
    if (!r.normalise) {
      for (int i = 0; i < r.experts; ++i) target[i] = to_bf16_bits(-(scores.term(i) / scores.total) * mean);
    }
    const float share = mean / r.scale;
    for (int rank = 0; rank < r.top_k; ++rank) target[ids[rank]] = to_bf16_bits(weights[rank] * (grads[rank] - share));
  }

 private:
  TANDEM_HD void through_sigmoids(const RowScores& scores, const int32_t* ids, const float* grads, float mean,
                                  uint16_t* target) const {
    float sum = kLeastSum;
    for (int rank = 0; rank < r.top_k; ++rank) sum = sum + scores.term(ids[rank]);
    for (int rank = 0; rank < r.top_k; ++rank) {
      const float s = scores.term(ids[rank]), gradient = r.scale * grads[rank];
      target[ids[rank]] = to_bf16_bits((r.normalise ? (gradient - mean) / sum : gradient) * s * (1 - s));
    }
  }
};
template <typename Execution>
int operate(Execution& execution, const TandemCudaRouteBackward& r) {
  if (!r.logits || !r.ids || !r.weights || !r.grad_weights || !r.grad_logits) return kTandemCudaNull;
  if (const int code = check_route(r.rows, r.experts, r.top_k)) return code;
  if (r.grad_stride < r.experts) return kTandemCudaStride;
  return each_element(execution, r.rows, RouteBackwardRow{r});
}

// Counts first, in one thread an expert; then where each expert begins; then its pairs in order.
struct CountOfExpert {
  TandemCudaGroupByExpert g;
  TANDEM_HD void operator()(int64_t expert) const {
    int32_t count = 0;
    for (int64_t pair = 0; pair < static_cast<int64_t>(g.rows) * g.top_k; ++pair) count += g.ids[pair] == expert;
    g.offsets[expert + 1] = count;
  }
};
struct OffsetsOfExperts {
  TandemCudaGroupByExpert g;
  TANDEM_HD void operator()(int64_t) const {
    g.offsets[0] = 0;
    for (int expert = 0; expert < g.experts; ++expert) g.offsets[expert + 1] += g.offsets[expert];
  }
};
struct PlacesOfExpert {
  TandemCudaGroupByExpert g;
  TANDEM_HD void operator()(int64_t expert) const {
    int32_t place = g.offsets[expert];
    for (int64_t pair = 0; pair < static_cast<int64_t>(g.rows) * g.top_k; ++pair) {
      const int32_t id = g.ids[pair];
      if (id == expert) g.places[pair] = place++;
      if (expert == 0 && (id < 0 || id >= g.experts)) g.places[pair] = -1;
    }
  }
};
template <typename Execution>
int operate(Execution& execution, const TandemCudaGroupByExpert& g) {
  if (!g.ids || !g.offsets || !g.places) return kTandemCudaNull;
  if (const int code = check_route(g.rows, g.experts, g.top_k)) return code;
  return in_order([&] { return each_element(execution, g.experts, CountOfExpert{g}); },
                  [&] { return each_element(execution, 1, OffsetsOfExperts{g}); },
                  [&] { return each_element(execution, g.experts, PlacesOfExpert{g}); });
}

template <typename Arguments>
struct PermuteElement {
  Arguments p;
  TANDEM_HD void operator()(int64_t i) const {
    const int64_t pair = i / p.width, column = i % p.width;
    if (p.places[pair] >= 0) p.out[p.places[pair] * p.width + column] = p.x[pair / p.top_k * p.width + column];
  }
};
template <typename Arguments>
int check_pairs(const Arguments& p) {
  if (p.rows < 0 || p.width < 0) return kTandemCudaSize;
  return p.top_k >= 1 ? kTandemCudaOk : kTandemCudaShape;
}
template <typename Execution, OneOf<TandemCudaPermute, TandemCudaPermuteFloat> Arguments>
int operate(Execution& execution, const Arguments& p) {
  if (!p.x || !p.places || !p.out) return kTandemCudaNull;
  if (const int code = check_pairs(p)) return code;
  return each_element(execution, static_cast<int64_t>(p.rows) * p.top_k * p.width, PermuteElement<Arguments>{p});
}

struct PermuteBackwardElement {
  TandemCudaPermuteBackward p;
  TANDEM_HD void operator()(int64_t i) const {
    const int32_t* places = p.places + i / p.width * p.top_k;
    float total = 0;
    for (int rank = 0; rank < p.top_k; ++rank) {
      if (places[rank] >= 0) total = total + from_bf16(p.grad_out[places[rank] * p.width + i % p.width]);
    }
    p.grad_x[i] = to_bf16_bits(total);
  }
};
template <typename Execution>
int operate(Execution& execution, const TandemCudaPermuteBackward& p) {
  if (!p.grad_out || !p.places || !p.grad_x) return kTandemCudaNull;
  if (const int code = check_pairs(p)) return code;
  return each_element(execution, static_cast<int64_t>(p.rows) * p.width, PermuteBackwardElement{p});
}

template <typename Arguments>
struct CombineElement {
  Arguments c;
  TANDEM_HD void operator()(int64_t i) const {
    const int64_t first = i / c.width * c.top_k;
    float total = 0;
    for (int rank = 0; rank < c.top_k; ++rank) {
      const int64_t place = c.places[first + rank];
      if (place >= 0) total = fmaf(c.weights[first + rank], value_of(c.y[place * c.width + i % c.width]), total);
    }
    c.out[i] = stored<std::remove_reference_t<decltype(*c.out)>>(value_of(c.residual[i]) + total);
  }
};
template <typename Execution, OneOf<TandemCudaCombine, TandemCudaCombineFloat> Arguments>
int operate(Execution& execution, const Arguments& c) {
  if (!c.y || !c.places || !c.weights || !c.residual || !c.out) return kTandemCudaNull;
  if (const int code = check_pairs(c)) return code;
  return each_element(execution, static_cast<int64_t>(c.rows) * c.width, CombineElement<Arguments>{c});
}

// A pair is a row of RowLanes: its weight's gradient is a product of rows.
struct CombineBackwardKernel : RowLanes {
  using Private = Nothing;
  TandemCudaCombineBackward c;

  TANDEM_HD explicit CombineBackwardKernel(const TandemCudaCombineBackward& arguments) : c(arguments) {}
  TANDEM_HD int64_t pairs() const { return static_cast<int64_t>(c.rows) * c.top_k; }
  TANDEM_HD bool run(int64_t block, int phase, int thread, Shared& shared, Private&) const {
    const int64_t pair = row_of(block, thread), place = pair < pairs() ? c.places[pair] : -1;
    const uint16_t* grad = c.grad_out + pair / c.top_k * c.width;
    const uint16_t* y = c.y + place * c.width;
    if (phase == 0) {
      if (place >= 0) {
        put(
            thread, c.width, shared, [&](int i) { return from_bf16(grad[i]); }, [&](int i) { return from_bf16(y[i]); });
      }
      return true;
    }
    if (pair < pairs() && lane_of(thread) == 0) c.grad_weights[pair] = place >= 0 ? total(thread, shared) : 0.0f;
    if (place < 0) return false;
    for (int i = lane_of(thread); i < c.width; i += kLanes)
      c.grad_y[place * c.width + i] = to_bf16_bits(c.weights[pair] * from_bf16(grad[i]));
    return false;
  }
};
template <typename Execution>
int operate(Execution& execution, const TandemCudaCombineBackward& c) {
  if (!c.y || !c.places || !c.weights || !c.grad_out || !c.grad_y || !c.grad_weights) return kTandemCudaNull;
  if (const int code = check_pairs(c)) return code;
  const CombineBackwardKernel kernel(c);
  return start(execution, kernel, RowLanes::blocks(kernel.pairs()));
}

}  // namespace tandem::kernels::cuda
