// The gradient of attention over a prefix tree: probabilities are formed again from the stored log-sums, 64 queries by
// 64 keys at a time, and the five products run on the panels of gemm.inl. One task is one kv head of one tree, from its
// first run to its last, so every sum has one order.
#pragma once

#include <vector>

#include "kernels/cpu/attention.inl"

namespace tandem::kernels::TANDEM_ISA {

constexpr int kBlock = kPageTokens;

class TreeHeadBackward {
 public:
  TreeHeadBackward(const AttentionShape& shape, const AttentionBackward& arguments, int kv_head,
                   const std::vector<TreeRun>& runs)
      : shape_(shape), in_(arguments), kv_head_(kv_head), size_(shape.head_size), group_(shape.heads / shape.kv_heads) {
    first_row_ = in_.rows;
    int end = 0;
    for (const TreeRun& run : runs) {
      first_row_ = std::min(first_row_, run.row);
      end = std::max(end, run.row + run.rows);
    }
    const size_t elements = static_cast<size_t>(std::max(0, end - first_row_)) * size_;
    grad_keys_.assign(elements, 0);
    grad_values_.assign(elements, 0);
    key_panel_.resize(static_cast<size_t>(kBlock) * size_);
    value_panel_.resize(static_cast<size_t>(kBlock) * size_);
    key_rows_.resize(static_cast<size_t>(kBlock) * size_);
    for (const TreeRun& run : runs) add_run(run);
    for (int row = first_row_; row < end; ++row) {
      const size_t from = static_cast<size_t>(row - first_row_) * size_;
      const size_t to = row * in_.grad_stride + static_cast<size_t>(kv_head_) * size_;
      for (int i = 0; i < size_; i += kLanes) {
        store(in_.grad_keys + to + i, load(&grad_keys_[from + i]));
        store(in_.grad_values + to + i, load(&grad_values_[from + i]));
      }
    }
  }

 private:
  // Per query head of the group: what does not change from one block of keys to the next.
  struct Head {
    std::vector<bf16> query_pairs, grad_pairs;  // [rows / 2][size][2]
    std::vector<float> delta;                   // sum of grad_out * out
    std::vector<float> grad_queries;            // [rows][size]
  };

  void add_run(const TreeRun& run) {
    std::vector<Head> heads(group_);
    for (int g = 0; g < group_; ++g) prepare(run, kv_head_ * group_ + g, heads[g]);
    const int length = static_cast<int>(run.path.size());
    for (int key = 0; key < length; key += kBlock) {
      const int keys = std::min(kBlock, length - key);
      gather(run.path.subspan(key, keys));
      for (int g = 0; g < group_; ++g) {
        // Queries before this block's first key see none of it.
        const int first_query = std::max(0, key - (length - run.rows)) / 2 * 2;
        for (int query = first_query; query < run.rows; query += kBlock) {
          add_block(run, heads[g], kv_head_ * group_ + g, query, std::min(kBlock, run.rows - query), key, keys);
        }
      }
    }
    for (int g = 0; g < group_; ++g) {
      for (int row = 0; row < run.rows; ++row) {
        bf16* target = in_.grad_queries + (run.row + row) * in_.grad_stride + (kv_head_ * group_ + g) * size_;
        for (int i = 0; i < size_; i += kLanes) {
          store(target + i, load(&heads[g].grad_queries[static_cast<size_t>(row) * size_ + i]));
        }
      }
    }
  }

  void prepare(const TreeRun& run, int head, Head& h) {
    const size_t pairs = static_cast<size_t>(run.rows + 1) / 2 * size_ * 2;
    h.query_pairs.assign(pairs, bf16{});
    h.grad_pairs.assign(pairs, bf16{});
    h.delta.resize(run.rows);
    h.grad_queries.assign(static_cast<size_t>(run.rows) * size_, 0);
    for (int row = 0; row < run.rows; ++row) {
      const bf16* query = in_.queries + (run.row + row) * in_.stride + head * size_;
      const size_t dense = static_cast<size_t>(run.row + row) * shape_.heads * size_ + head * size_;
      Float products = {};
      for (int i = 0; i < size_; i += kLanes) {
        products = fma(load(in_.grad_out + dense + i), load(in_.out + dense + i), products);
      }
      h.delta[row] = sum(products);
      const size_t at = static_cast<size_t>(row / 2) * size_ * 2 + row % 2;
      for (int i = 0; i < size_; ++i) {
        h.query_pairs[at + i * 2] = query[i];
        h.grad_pairs[at + i * 2] = in_.grad_out[dense + i];
      }
    }
  }

  // Keys and values of one block of the path, as panels; slots beyond its end are zero.
  void gather(std::span<const int> path) {
    path_ = path;
    std::fill(key_panel_.begin(), key_panel_.end(), bf16{});
    std::fill(value_panel_.begin(), value_panel_.end(), bf16{});
    std::fill(key_rows_.begin(), key_rows_.end(), bf16{});
    for (int slot = 0; slot < static_cast<int>(path.size()); ++slot) {
      const size_t at = path[slot] * in_.stride + static_cast<size_t>(kv_head_) * size_;
      const bf16* key = in_.keys + at;
      const bf16* value = in_.values + at;
      uint32_t* key_pairs = reinterpret_cast<uint32_t*>(key_panel_.data()) + slot;
      uint32_t* value_pairs = reinterpret_cast<uint32_t*>(value_panel_.data()) + slot;
      for (int pair = 0; pair < size_ / 2; ++pair) {
        key_pairs[pair * kBlock] = load_pair(key + pair * 2);
        value_pairs[pair * kBlock] = load_pair(value + pair * 2);
      }
      bf16* rows = key_rows_.data() + (slot / 2) * size_ * 2 + slot % 2;
      for (int i = 0; i < size_; ++i) rows[i * 2] = key[i];
    }
  }

  void add_block(const TreeRun& run, Head& h, int head, int query, int queries, int key, int keys) {
    alignas(64) bf16 scores_grad[kBlock * kBlock] = {};                               // dS [query][key]
    alignas(64) bf16 turned_p[kBlock * kBlock] = {}, turned_s[kBlock * kBlock] = {};  // [key][query]
    alignas(64) float scores[kTileRows * kPanelColumns], grads[kTileRows * kPanelColumns];
    const int first_position = static_cast<int>(run.path.size()) - run.rows;
    for (int q = 0; q < queries; q += kTileRows) {
      const int rows = std::min(kTileRows, queries - q);
      const int row = run.row + query + q;
      const size_t dense = static_cast<size_t>(row) * shape_.heads * size_ + head * size_;
      product_tile(in_.queries + row * in_.stride + head * size_, in_.stride, rows, key_panel_.data(), size_, scores);
      product_tile(in_.grad_out + dense, static_cast<size_t>(shape_.heads) * size_, rows, value_panel_.data(), size_,
                   grads);
      for (int r = 0; r < rows; ++r) {
        const int visible = std::min(keys, first_position + query + q + r + 1 - key);
        const float log_sum = in_.log_sum[static_cast<size_t>(row + r) * shape_.heads + head];
        bf16 probabilities[kBlock], slopes[kBlock];
        for (int c = 0; c < kBlock; c += kLanes) {
          const Float score = load(scores + r * kPanelColumns + c) * broadcast(shape_.scale);
          const Float p = exponential(score - broadcast(log_sum));
          const Float slope =
              p * (load(grads + r * kPanelColumns + c) - broadcast(h.delta[query + q + r])) * broadcast(shape_.scale);
          store(probabilities + c, p);
          store(slopes + c, slope);
        }
        for (int c = std::max(0, visible); c < kBlock; ++c) probabilities[c] = slopes[c] = bf16{};
        std::memcpy(scores_grad + (q + r) * kBlock, slopes, sizeof slopes);
        for (int c = 0; c < visible; ++c) {
          turned_p[c * kBlock + q + r] = probabilities[c];
          turned_s[c * kBlock + q + r] = slopes[c];
        }
      }
    }
    const int even_queries = (queries + 1) / 2 * 2;
    for (int column = 0; column < size_; column += kPanelColumns) {
      const size_t wide = size_t{2} * size_;
      for (int q = 0; q < queries; q += kTileRows) {
        const int rows = std::min(kTileRows, queries - q);
        product_tile(scores_grad + q * kBlock, kBlock, rows, key_rows_.data() + column * 2, kBlock, scores, wide);
        for (int r = 0; r < rows; ++r) {
          add_row(scores + r * kPanelColumns, &h.grad_queries[static_cast<size_t>(query + q + r) * size_ + column]);
        }
      }
      const size_t pairs_at = static_cast<size_t>(query / 2) * wide + column * 2;
      for (int k = 0; k < keys; k += kTileRows) {
        const int rows = std::min(kTileRows, keys - k);
        product_tile(turned_s + k * kBlock, kBlock, rows, h.query_pairs.data() + pairs_at, even_queries, scores, wide);
        product_tile(turned_p + k * kBlock, kBlock, rows, h.grad_pairs.data() + pairs_at, even_queries, grads, wide);
        for (int r = 0; r < rows; ++r) {
          const size_t target = static_cast<size_t>(path_[k + r] - first_row_) * size_ + column;
          add_row(scores + r * kPanelColumns, &grad_keys_[target]);
          add_row(grads + r * kPanelColumns, &grad_values_[target]);
        }
      }
    }
  }

  static void add_row(const float* from, float* to) {
    for (int c = 0; c < kPanelColumns; c += kLanes) store(to + c, load(to + c) + load(from + c));
  }

  const AttentionShape& shape_;
  const AttentionBackward& in_;
  const int kv_head_, size_, group_;
  int first_row_ = 0;
  std::span<const int> path_;
  std::vector<bf16> key_panel_, value_panel_, key_rows_;
  std::vector<float> grad_keys_, grad_values_;
};

inline void attention_backward(ThreadPool& threads, const AttentionShape& shape, const AttentionBackward& arguments,
                               std::span<const std::vector<TreeRun>> trees) {
  const int tasks = static_cast<int>(trees.size()) * shape.kv_heads;
  threads.run(tasks, [&](int task) {
    TreeHeadBackward(shape, arguments, task % shape.kv_heads, trees[task / shape.kv_heads]);
  });
}

}  // namespace tandem::kernels::TANDEM_ISA
