// The gradient of attention over a prefix tree: probabilities are formed again from the stored log-sums, 64 queries by
// 64 keys at a time, and the five products run on the panels of gemm.inl. One task is one query head of one tree, from
// its first run to its last; then the heads of a group are added up in order. So every sum has one order.
#pragma once

#include <vector>

#include "kernels/cpu/attention.inl"

namespace tandem::kernels::TANDEM_ISA {

constexpr int kBlock = kPageTokens;

// The rows of a tree, and what one query head adds to the gradients of their keys and values.
struct TreeRows {
  explicit TreeRows(const std::vector<TreeRun>& runs) {
    for (const TreeRun& run : runs) {
      if (run.rows > 0 && (end == 0 || run.row < first)) first = run.row;
      end = std::max(end, run.row + run.rows);
    }
  }
  int first = 0, end = 0;
};
struct HeadGradients {
  std::vector<float> keys, values;  // [row of the tree][head_size], [row of the tree][value_size]
};

class TreeHeadBackward {
 public:
  TreeHeadBackward(const AttentionShape& shape, const AttentionBackward& arguments, int head,
                   const std::vector<TreeRun>& runs, HeadGradients& gradients)
      : shape_(shape),
        in_(arguments),
        head_(head),
        kv_head_(head / (shape.heads / shape.kv_heads)),
        size_(shape.head_size),
        value_size_(shape.values()),
        gradients_(gradients) {
    const TreeRows rows(runs);
    first_row_ = rows.first;
    const size_t tree_rows = rows.end - rows.first;
    gradients_.keys.assign(tree_rows * size_, 0);
    gradients_.values.assign(tree_rows * value_size_, 0);
    key_panel_.resize(static_cast<size_t>(kBlock) * size_);
    value_panel_.resize(static_cast<size_t>(kBlock) * value_size_);
    key_rows_.resize(static_cast<size_t>(kBlock) * size_);
    keys_.resize(static_cast<size_t>(kBlock) * size_);
    values_.resize(static_cast<size_t>(kBlock) * value_size_);
    for (const TreeRun& run : runs) add_run(run);
  }

 private:
  // What does not change from one block of keys to the next.
  struct Head {
    std::vector<bf16> query_pairs, grad_pairs;  // [rows / 2][size][2], [rows / 2][value_size][2]
    std::vector<float> delta;                   // sum of grad_out * out
    std::vector<float> grad_queries;            // [rows][size]
  };

  void add_run(const TreeRun& run) {
    prepare(run, head_, prepared_);
    const int length = static_cast<int>(run.path.size());
    for (int key = 0; key < length; key += kBlock) {
      const int keys = std::min(kBlock, length - key);
      gather(run.path.subspan(key, keys));
      // Queries before this block's first key see none of it, nor do those whose window begins behind its last.
      const int first_query = std::max(0, key - (length - run.rows)) / 2 * 2;
      const int64_t behind =
          shape_.window > 0 ? int64_t{key} + keys - 1 + shape_.window - (length - run.rows) : run.rows;
      for (int query = first_query; query < std::min<int64_t>(run.rows, behind); query += kBlock) {
        add_block(run, prepared_, head_, query, std::min(kBlock, run.rows - query), key, keys);
      }
    }
    for (int row = 0; row < run.rows; ++row) {
      bf16* target = in_.grad_queries + (run.row + row) * in_.grad_stride + head_ * size_;
      for (int i = 0; i < size_; i += kLanes) {
        store(target + i, load(&prepared_.grad_queries[static_cast<size_t>(row) * size_ + i]));
      }
    }
  }

  void prepare(const TreeRun& run, int head, Head& h) {
    const size_t even_rows = static_cast<size_t>(run.rows + 1) / 2 * 2, width = grad_width();
    h.query_pairs.assign(even_rows * size_, bf16{});
    h.grad_pairs.assign(even_rows * value_size_, bf16{});
    h.delta.resize(run.rows);
    h.grad_queries.assign(static_cast<size_t>(run.rows) * size_, 0);
    for (int row = 0; row < run.rows; ++row) {
      const bf16* query = in_.queries + (run.row + row) * in_.stride + head * size_;
      const size_t dense = (run.row + row) * width + static_cast<size_t>(head) * value_size_;
      Float products = {};
      for (int i = 0; i < value_size_; i += kLanes) {
        products = fma(load(in_.grad_out + dense + i), load(in_.out + dense + i), products);
      }
      h.delta[row] = sum(products);
      if (row % 2 != 0) continue;
      const bool last = row + 1 == run.rows;
      for (int i = 0; i < size_; i += kLanes) {
        pair_up(query + i, last ? nullptr : query + in_.stride + i,
                &h.query_pairs[static_cast<size_t>(row) * size_ + i * 2]);
      }
      for (int i = 0; i < value_size_; i += kLanes) {
        const bf16* grad = in_.grad_out + dense + i;
        pair_up(grad, last ? nullptr : grad + width, &h.grad_pairs[static_cast<size_t>(row) * value_size_ + i * 2]);
      }
    }
  }

  // Keys and values of one block of the path, as panels; slots beyond its end are zero.
  void gather(std::span<const int> path) {
    path_ = path;
    gather(in_.keys, size_, keys_, key_panel_);
    gather(in_.values, value_size_, values_, value_panel_);
    for (int slot = 0; slot < kBlock; slot += 2) {
      const bf16* key = &keys_[static_cast<size_t>(slot) * size_];
      for (int i = 0; i < size_; i += kLanes)
        pair_up(key + i, key + size_ + i, &key_rows_[static_cast<size_t>(slot) * size_ + i * 2]);
    }
  }
  void gather(const bf16* from, int size, std::vector<bf16>& rows, std::vector<bf16>& panel) const {
    const size_t count = path_.size();
    for (size_t slot = 0; slot < count; ++slot) {
      std::memcpy(&rows[slot * size], from + path_[slot] * in_.stride + static_cast<size_t>(kv_head_) * size,
                  sizeof(bf16) * size);
    }
    std::fill(rows.begin() + count * size, rows.end(), bf16{});
    for (int slot = 0; slot < kBlock; slot += kLanes) {
      for (int pair = 0; pair < size / 2; pair += kLanes) {
        transpose_pairs(&rows[static_cast<size_t>(slot) * size + pair * 2], size,
                        &panel[(static_cast<size_t>(pair) * kBlock + slot) * 2], kBlock * 2);
      }
    }
  }
  // Elements of a row of `out` and its gradient.
  size_t grad_width() const { return static_cast<size_t>(shape_.heads) * value_size_; }

  // 64 queries by 64 keys. Probabilities and gradients are kept by rows, for the gradient of the queries, and with two
  // queries side by side, [query / 2][key][2], which is how the gradients of keys and values read them.
  void add_block(const TreeRun& run, Head& h, int head, int query, int queries, int key, int keys) {
    alignas(64) bf16 probabilities[kBlock * kBlock], gradients[kBlock * kBlock];  // [query][key]
    alignas(64) bf16 paired_p[kBlock * kBlock], paired_s[kBlock * kBlock];
    alignas(64) float scores[kTileRows * kPanelColumns], grads[kTileRows * kPanelColumns];
    const int first_position = static_cast<int>(run.path.size()) - run.rows;
    for (int q = 0; q < queries; q += kTileRows) {
      const int rows = std::min(kTileRows, queries - q);
      const int row = run.row + query + q;
      const size_t width = grad_width();
      product_tile(LeftRows<bf16>{in_.queries + row * in_.stride + head * size_, in_.stride}, rows, key_panel_.data(),
                   size_, scores);
      product_tile(LeftRows<bf16>{in_.grad_out + row * width + head * value_size_, width}, rows, value_panel_.data(),
                   value_size_, grads);
      for (int r = 0; r < rows; ++r) {
        const float log_sum = in_.log_sum[static_cast<size_t>(row + r) * shape_.heads + head];
        bf16* p_row = probabilities + (q + r) * kBlock;
        bf16* s_row = gradients + (q + r) * kBlock;
        for (int c = 0; c < kBlock; c += kLanes) {
          const Float score = load(scores + r * kPanelColumns + c) * broadcast(shape_.scale);
          const Float p = exponential(score - broadcast(log_sum));
          store(p_row + c, p);
          store(s_row + c, p * (load(grads + r * kPanelColumns + c) - broadcast(h.delta[query + q + r])) *
                               broadcast(shape_.scale));
        }
        const int position = first_position + query + q + r;
        const int end = std::clamp(position + 1 - key, 0, keys);
        const int begin = std::clamp(first_seen(shape_, position) - key, 0, end);
        for (bf16* row_of : {p_row, s_row}) {
          std::fill(row_of, row_of + begin, bf16{});
          std::fill(row_of + end, row_of + kBlock, bf16{});
        }
      }
    }
    const int even_queries = (queries + 1) / 2 * 2;
    if (queries != even_queries) {
      std::fill_n(probabilities + queries * kBlock, kBlock, bf16{});
      std::fill_n(gradients + queries * kBlock, kBlock, bf16{});
    }
    for (int q = 0; q < even_queries; q += 2) {
      const bf16 *p_row = probabilities + q * kBlock, *s_row = gradients + q * kBlock;
      for (int c = 0; c < kBlock; c += kLanes) {
        pair_up(p_row + c, p_row + kBlock + c, paired_p + q * kBlock + c * 2);
        pair_up(s_row + c, s_row + kBlock + c, paired_s + q * kBlock + c * 2);
      }
    }
    for (int column = 0; column < size_; column += kPanelColumns) {
      const size_t wide = size_t{2} * size_;
      const int start = panel_start(column, size_);
      for (int q = 0; q < queries; q += kTileRows) {
        const int rows = std::min(kTileRows, queries - q);
        product_tile(LeftRows<bf16>{gradients + q * kBlock, kBlock}, rows, key_rows_.data() + start * 2, kBlock, scores,
                     wide);
        for (int r = 0; r < rows; ++r) {
          add_row(scores + r * kPanelColumns, &h.grad_queries[static_cast<size_t>(query + q + r) * size_ + start],
                  column - start);
        }
      }
    }
    add_by_key(paired_s, keys, h.query_pairs.data() + static_cast<size_t>(query) * size_, even_queries, size_,
               gradients_.keys);
    add_by_key(paired_p, keys, h.grad_pairs.data() + static_cast<size_t>(query) * value_size_, even_queries,
               value_size_, gradients_.values);
  }

  // Adds to the gradient of each key, or value, of the block: the sum over queries of its factor times the query's row.
  void add_by_key(const bf16* factors, int keys, const bf16* pairs, int even_queries, int size,
                  std::vector<float>& gradient) const {
    alignas(64) float tile[kTileRows * kPanelColumns];
    for (int column = 0; column < size; column += kPanelColumns) {
      const int start = panel_start(column, size);
      for (int k = 0; k < keys; k += kTileRows) {
        const int rows = std::min(kTileRows, keys - k);
        product_tile(LeftRows<bf16>{factors + k * 2, 2, kBlock * 2}, rows, pairs + start * 2, even_queries, tile,
                     size_t{2} * size);
        for (int r = 0; r < rows; ++r) {
          add_row(tile + r * kPanelColumns, &gradient[static_cast<size_t>(path_[k + r] - first_row_) * size + start],
                  column - start);
        }
      }
    }
  }

  // The columns of a panel from the `first` on.
  static void add_row(const float* from, float* to, int first) {
    for (int c = first; c < kPanelColumns; c += kLanes) store(to + c, load(to + c) + load(from + c));
  }

  const AttentionShape& shape_;
  const AttentionBackward& in_;
  const int head_, kv_head_, size_, value_size_;
  int first_row_ = 0;
  std::span<const int> path_;
  std::vector<bf16> keys_, values_;  // [slot][size], [slot][value_size]
  std::vector<bf16> key_panel_, value_panel_, key_rows_;
  Head prepared_;
  HeadGradients& gradients_;
};

inline void attention_backward(ThreadPool& threads, const AttentionShape& shape, const AttentionBackward& arguments,
                               std::span<const std::vector<TreeRun>> trees) {
  const int group = shape.heads / shape.kv_heads;
  std::vector<HeadGradients> of_heads(shape.heads);
  for (const std::vector<TreeRun>& tree : trees) {
    threads.run(shape.heads, [&](int head) { TreeHeadBackward(shape, arguments, head, tree, of_heads[head]); });
    const TreeRows rows(tree);
    for_pieces(threads, rows.end - rows.first, 64, [&](size_t begin, size_t end) {
      const auto join = [&](std::vector<float> HeadGradients::*of_head, int size, bf16* out) {
        for (int kv_head = 0; kv_head < shape.kv_heads; ++kv_head) {
          for (size_t row = begin; row < end; ++row) {
            bf16* to = out + (rows.first + row) * arguments.grad_stride + static_cast<size_t>(kv_head) * size;
            for (int i = 0; i < size; i += kLanes) {
              Float sums = {};
              for (int head = kv_head * group; head < (kv_head + 1) * group; ++head)
                sums = sums + load(&(of_heads[head].*of_head)[row * size + i]);
              store(to + i, sums);
            }
          }
        }
      };
      join(&HeadGradients::keys, shape.head_size, arguments.grad_keys);
      join(&HeadGradients::values, shape.values(), arguments.grad_values);
    });
  }
}

}  // namespace tandem::kernels::TANDEM_ISA
