// The gradient of attention over prefix trees: formulas and order of additions of kernels/cpu/attention_backward.inl.
//
// Probabilities are formed again from the stored log-sums, 64 queries by 64 keys at a time; each such product is one
// fused chain, and products are added up in order. One kernel gathers for each query row, one for each key: the second
// goes over the runs that see the key in the order of the tree, head after head, so nothing is added to by two blocks.
#pragma once

#include "kernels/cuda/attention.cuh"

namespace tandem::kernels::cuda {

// sum over the head of grad_out * out, in lanes: [row][heads].
struct AttentionDelta {
  TandemCudaAttentionBackward a;
  float* delta;
  TANDEM_HD void operator()(int64_t i) const {
    const int64_t at = i * value_size_of(a);
    float lanes[kLanes];
    for (int lane = 0; lane < kLanes; ++lane) {
      float sum = 0;
      for (int c = lane; c < value_size_of(a); c += kLanes) {
        sum = fmaf(from_bf16(a.grad_out[at + c]), from_bf16(a.out[at + c]), sum);
      }
      lanes[lane] = sum;
    }
    delta[i] = sum_of_lanes(lanes);
  }
};

// What one query row and one head have to do with one key, rounded as products take it.
struct AttentionPair {
  uint16_t probability, gradient;
};
TANDEM_HD AttentionPair pair_of(const TandemCudaAttentionBackward& a, const float* delta, int64_t query, int head,
                                int64_t key) {
  const int kv_head = head / (a.heads / a.kv_heads);
  const int value_size = value_size_of(a);
  const int64_t query_at = query * a.stride + static_cast<int64_t>(head) * a.head_size;
  const int64_t key_at = key * a.stride + static_cast<int64_t>(kv_head) * a.head_size;
  const int64_t value_at = key * a.stride + static_cast<int64_t>(kv_head) * value_size;
  const int64_t row_head = query * a.heads + head;
  const float score = dot(a.queries + query_at, a.keys + key_at, a.head_size);
  const float grad = dot(a.grad_out + row_head * value_size, a.values + value_at, value_size);
  const float p = exponential(score * a.scale - a.log_sum[row_head]);
  return {to_bf16_bits(p), to_bf16_bits(p * (grad - delta[row_head]) * a.scale)};
}

// One head of one query row: 64 keys of its path at a time.
struct AttentionQueryGradient {
  static constexpr int kThreads = kKeyBlock;
  static constexpr int kOwn = kMaxHeadSize / kThreads;
  struct Shared {
    uint16_t gradients[kKeyBlock];
  };
  struct Private {
    float grad[kOwn];
  };
  TandemCudaAttentionBackward a;
  const float* delta;

  TANDEM_HD bool run(int64_t block, int phase, int thread, Shared& shared, Private& own) const {
    const int64_t row = block / a.heads;
    const int head = static_cast<int>(block % a.heads);
    if (a.row_run[row] < 0) return false;
    const TandemCudaTreeRun run = a.runs[a.row_run[row]];
    const int32_t* path = a.paths + run.path_begin;
    const int position = run.path_length - run.rows + static_cast<int>(row - run.row);
    const int seen = first_seen(a.window, position);
    const int first = (seen / kKeyBlock + phase / 2) * kKeyBlock;
    const int hidden = seen > first ? seen - first : 0, keys = smaller(kKeyBlock, position + 1 - first);
    if (phase % 2 == 0) {
      if (phase == 0) {
        for (int i = 0; i < kOwn; ++i) own.grad[i] = 0;
      }
      if (thread >= hidden && thread < keys) {
        shared.gradients[thread] = pair_of(a, delta, row, head, path[first + thread]).gradient;
      }
      return true;
    }
    const int64_t key_at = static_cast<int64_t>(head / (a.heads / a.kv_heads)) * a.head_size;
    for (int i = 0; i < kOwn && thread + i * kThreads < a.head_size; ++i) {
      float sum = 0;
      for (int key = hidden; key < keys; ++key) {
        const uint16_t other = a.keys[path[first + key] * a.stride + key_at + thread + i * kThreads];
        sum = fmaf(from_bf16(shared.gradients[key]), from_bf16(other), sum);
      }
      own.grad[i] = own.grad[i] + sum;
    }
    if (first + kKeyBlock <= position) return true;
    uint16_t* target = a.grad_queries + row * a.grad_stride + static_cast<int64_t>(head) * a.head_size;
    for (int i = 0; i < kOwn && thread + i * kThreads < a.head_size; ++i) {
      target[thread + i * kThreads] = to_bf16_bits(own.grad[i]);
    }
    return false;
  }
};

// One kv head of one key: for each head of its group the runs that see it in order, 64 queries at a time.
struct AttentionKeyGradient {
  static constexpr int kThreads = kKeyBlock;
  static constexpr int kOwn = kMaxHeadSize / kThreads;
  struct Shared {
    AttentionPair pairs[kThreads];
  };
  struct Private {
    int head, run, query;  // where this block stands: the next 64 queries
    float head_keys[kOwn], head_values[kOwn], keys[kOwn], values[kOwn];
  };
  TandemCudaAttentionBackward a;
  const float* delta;

  // Even phases form probabilities and gradients of 64 queries, odd ones add their products up and move on.
  TANDEM_HD bool run(int64_t block, int phase, int thread, Shared& shared, Private& own) const {
    const int64_t row = block / a.kv_heads;
    const int kv_head = static_cast<int>(block % a.kv_heads), group = a.heads / a.kv_heads;
    if (a.row_run[row] < 0) return false;
    const TandemCudaTreeRun mine = a.runs[a.row_run[row]];
    const int position = mine.path_length - mine.rows + static_cast<int>(row - mine.row);
    if (phase == 0) begin(mine, row, position, kv_head * group, own);
    const TandemCudaTreeRun run = a.runs[own.run];
    const int queries = smaller(kThreads, run.rows - own.query);
    if (phase % 2 == 0) {
      const int64_t query = run.row + own.query + thread;
      if (thread < queries) {
        const int at = run.path_length - run.rows + own.query + thread;
        const bool sees = at >= position && first_seen(a.window, at) <= position;
        shared.pairs[thread] = sees ? pair_of(a, delta, query, own.head, row) : AttentionPair{0, 0};
      }
      return true;
    }
    add(run, queries, thread, shared, own);
    own.query += kThreads;
    if (goes_on(run, position, own) || next_run(mine, row, position, own.run + 1, own)) return true;
    end_head(own);
    if (++own.head < (kv_head + 1) * group) {
      next_run(mine, row, position, mine.tree_begin, own);
      return true;
    }
    finish(row, kv_head, thread, own);
    return false;
  }

 private:
  TANDEM_HD void begin(const TandemCudaTreeRun& mine, int64_t row, int position, int head, Private& own) const {
    for (int i = 0; i < kOwn; ++i) own.head_keys[i] = own.head_values[i] = own.keys[i] = own.values[i] = 0;
    own.head = head;
    next_run(mine, row, position, mine.tree_begin, own);
  }
  // The first run from `from` on whose path holds the key, and its first block of queries: those before the first key
  // of the key's block see none of that block, and queries go in pairs.
  TANDEM_HD bool next_run(const TandemCudaTreeRun& mine, int64_t row, int position, int from, Private& own) const {
    for (int run = from; run < mine.tree_end; ++run) {
      const TandemCudaTreeRun candidate = a.runs[run];
      if (candidate.path_length <= position || a.paths[candidate.path_begin + position] != row) continue;
      const int hidden = position / kKeyBlock * kKeyBlock - (candidate.path_length - candidate.rows);
      own.run = run;
      own.query = hidden > 0 ? hidden / 2 * 2 : 0;
      if (goes_on(candidate, position, own)) return true;
    }
    return false;
  }
  // Whether there are queries left whose window does not begin behind the key.
  TANDEM_HD bool goes_on(const TandemCudaTreeRun& run, int position, const Private& own) const {
    return own.query < run.rows && first_seen(a.window, run.path_length - run.rows + own.query) <= position;
  }
  TANDEM_HD void add(const TandemCudaTreeRun& run, int queries, int thread, const Shared& shared, Private& own) const {
    const int64_t first = run.row + own.query;
    const int value_size = value_size_of(a);
    for (int i = 0; i < kOwn && thread + i * kThreads < a.head_size; ++i) {
      const uint16_t* of_query = a.queries + first * a.stride + own.head * a.head_size + thread + i * kThreads;
      float sum = 0;
      for (int query = 0; query < queries; ++query) {
        sum = fmaf(from_bf16(shared.pairs[query].gradient), from_bf16(of_query[query * a.stride]), sum);
      }
      own.head_keys[i] = own.head_keys[i] + sum;
    }
    for (int i = 0; i < kOwn && thread + i * kThreads < value_size; ++i) {
      const int64_t grad_stride = static_cast<int64_t>(a.heads) * value_size;
      const uint16_t* of_query = a.grad_out + first * grad_stride + own.head * value_size + thread + i * kThreads;
      float sum = 0;
      for (int query = 0; query < queries; ++query) {
        sum = fmaf(from_bf16(shared.pairs[query].probability), from_bf16(of_query[query * grad_stride]), sum);
      }
      own.head_values[i] = own.head_values[i] + sum;
    }
  }
  TANDEM_HD void end_head(Private& own) const {
    for (int i = 0; i < kOwn; ++i) {
      own.keys[i] = own.keys[i] + own.head_keys[i];
      own.values[i] = own.values[i] + own.head_values[i];
      own.head_keys[i] = own.head_values[i] = 0;
    }
  }
  TANDEM_HD void finish(int64_t row, int kv_head, int thread, const Private& own) const {
    const int value_size = value_size_of(a);
    uint16_t* keys = a.grad_keys + row * a.grad_stride + static_cast<int64_t>(kv_head) * a.head_size;
    uint16_t* values = a.grad_values + row * a.grad_stride + static_cast<int64_t>(kv_head) * value_size;
    for (int at = thread, i = 0; at < a.head_size; at += kThreads, ++i) keys[at] = to_bf16_bits(own.keys[i]);
    for (int at = thread, i = 0; at < value_size; at += kThreads, ++i) values[at] = to_bf16_bits(own.values[i]);
  }
};

inline size_t attention_backward_workspace(int rows, int heads) {
  return static_cast<size_t>(rows) * heads * sizeof(float);
}
template <typename Execution>
int backward_on_tensor_cores(Execution& execution, const TandemCudaAttentionBackward& a, const float* delta);
template <typename Execution>
int operate(Execution& execution, const TandemCudaAttentionBackward& a) {
  if (!a.queries || !a.keys || !a.values || !a.out || !a.grad_out || !a.log_sum || !a.grad_queries || !a.grad_keys ||
      !a.grad_values || !a.runs || !a.row_run || !a.paths || !a.workspace) {
    return kTandemCudaNull;
  }
  if (a.rows < 0) return kTandemCudaSize;
  if (!fits(a.heads, a.kv_heads, a.head_size, value_size_of(a)) || a.window < 0) return kTandemCudaShape;
  const int64_t query_width = static_cast<int64_t>(a.heads) * a.head_size;
  if (a.stride < query_width || a.grad_stride < query_width) return kTandemCudaStride;
  if (a.workspace_bytes < attention_backward_workspace(a.rows, a.heads)) return kTandemCudaWorkspace;
  float* delta = static_cast<float*>(a.workspace);
  const int64_t row_heads = static_cast<int64_t>(a.rows) * a.heads;
  const auto form_delta = [&] { return each_element(execution, row_heads, AttentionDelta{a, delta}); };
  if constexpr (requires { execution.tensor(); }) {
    if (execution.tensor() && tensor_head_fits(a.head_size) && tensor_head_fits(value_size_of(a)))
      return in_order(form_delta, [&] { return backward_on_tensor_cores(execution, a, delta); });
  }
  return in_order(
      form_delta,
      [&] {
        return start(execution, AttentionQueryGradient{a, delta}, row_heads);
      },
      [&] {
        return start(execution, AttentionKeyGradient{a, delta}, static_cast<int64_t>(a.rows) * a.kv_heads);
      });
}

}  // namespace tandem::kernels::cuda
