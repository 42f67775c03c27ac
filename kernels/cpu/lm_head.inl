// Logsumexp and log-probabilities by slabs of the vocabulary, and their gradient.
#pragma once

#include <cmath>
#include <vector>

#include "kernels/cpu/gemm.inl"

namespace tandem::kernels::TANDEM_ISA {

constexpr int kSlabPanels = 64;  // columns of 64 panels are joined in order; then the slabs are, in order
constexpr int kHeadRows = kTileRows * 16;

TANDEM_INLINE float exponential_of(float x) { return exponential(broadcast(x))[0]; }

TANDEM_INLINE void join(RunningSum& total, const RunningSum& next) {
  if (next.maximum == -INFINITY) return;
  const float maximum = total.maximum > next.maximum ? total.maximum : next.maximum;
  const float kept = total.maximum == -INFINITY ? 0 : total.sum * exponential_of(total.maximum - maximum);
  total.sum = kept + next.sum * exponential_of(next.maximum - maximum);
  total.maximum = maximum;
}

TANDEM_INLINE RunningSum sum_of_panel(const float* logits) {
  Float top = load(logits);
  for (int unit = 1; unit < kPanelUnits; ++unit) top = maximum(top, load(logits + unit * kLanes));
  const float peak = largest(top);
  Float sums = {};
  for (int unit = 0; unit < kPanelUnits; ++unit) {
    sums = sums + exponential_below(load(logits + unit * kLanes) - broadcast(peak));
  }
  return {peak, sum(sums)};
}

// The sums of some rows over the panels of a slab. As long as a vector may be loaded from any row on.
struct RunningSums {
  alignas(64) float maximum[kHeadRows + kLanes], sum[kHeadRows + kLanes];
  RunningSums() {
    std::fill(std::begin(maximum), std::end(maximum), -INFINITY);
    std::fill(std::begin(sum), std::end(sum), 0.0f);
  }
  // `join` of sixteen rows from `row` on; rows whose next panel has the maximum -infinity stay as they are.
  TANDEM_INLINE void add(int row, const float* next_maximum, const float* next_sum) {
    const Float nothing = broadcast(-INFINITY);
    const Float old_top = load(maximum + row), next_top = load(next_maximum), old = load(sum + row);
    const Float top = TANDEM_ISA::maximum(old_top, next_top);
    const Float kept = select(old_top == nothing, Float{}, old * exponential(old_top - top));
    const Float joined = kept + load(next_sum) * exponential(next_top - top);
    store(maximum + row, select(next_top == nothing, old_top, top));
    store(sum + row, select(next_top == nothing, old, joined));
  }
};

TANDEM_INLINE void hide_padding(float* tile, int rows, int columns) {
  for (int r = 0; r < rows; ++r) {
    for (int c = columns; c < kPanelColumns; ++c) tile[r * kPanelColumns + c] = -INFINITY;
  }
}

// Leaves of rows of a tile what is kept of them: `kept` is the word of the first row, those of others are `stride`
// apart. What is not becomes `instead`. Null: all is.
TANDEM_INLINE void drop_columns(float* tile, const uint64_t* kept, size_t stride, int rows, float instead) {
  if (kept == nullptr) return;
  for (int r = 0; r < rows; ++r) {
    const uint64_t word = kept[r * stride];
    if (word == ~uint64_t{0}) continue;
    for (int c = 0; c < kPanelColumns; ++c) {
      if ((word >> c & 1) == 0) tile[r * kPanelColumns + c] = instead;
    }
  }
}
// Whether none of these rows keeps anything of a panel.
TANDEM_INLINE bool is_dropped(const uint64_t* kept, size_t stride, int rows) {
  if (kept == nullptr) return false;
  for (int r = 0; r < rows; ++r) {
    if (kept[r * stride] != 0) return false;
  }
  return true;
}

// Rows of a tile of logits, each times its own scale. Null: as they are.
TANDEM_INLINE void scale_rows(float* tile, const float* scales, int rows) {
  if (scales == nullptr) return;
  for (int r = 0; r < rows; ++r) {
    const Float scale = broadcast(scales[r]);
    float* const logits = tile + r * kPanelColumns;
    for (int c = 0; c < kPanelColumns; c += kLanes) store(logits + c, load(logits + c) * scale);
  }
}

struct SlabResult {
  RunningSum total;
  float best = -INFINITY;
  int32_t best_token = 0;
};

template <typename T>
void lm_head(ThreadPool& threads, const BasicLmHead<T>& h, std::span<const TokenPick> picks,
             std::span<float> logprobs) {
  const int panels = (h.vocabulary + kPanelColumns - 1) / kPanelColumns;
  const int slabs = (panels + kSlabPanels - 1) / kSlabPanels;
  const int chunks = (h.rows + kHeadRows - 1) / kHeadRows;
  const size_t padded = padded_vocabulary(h.vocabulary);
  std::vector<SlabResult> results(static_cast<size_t>(h.rows) * slabs);
  // The picks of each row, and where they lie in the vocabulary.
  std::vector<int> first_pick(h.rows + 1, 0);
  for (const TokenPick& pick : picks) ++first_pick[pick.row + 1];
  for (int row = 0; row < h.rows; ++row) first_pick[row + 1] += first_pick[row];
  if (h.kept) std::ranges::fill(logprobs, -INFINITY);  // of what is in no panel that is looked at

  threads.run(slabs * chunks, [&](int task) {
    const int slab = task % slabs, chunk = task / slabs;
    const int begin_row = chunk * kHeadRows, end_row = std::min(h.rows, (chunk + 1) * kHeadRows);
    alignas(64) float tile[kTileRows * kPanelColumns];
    RunningSums sums;
    SlabResult* const of_slab = &results[static_cast<size_t>(begin_row) * slabs + slab];  // of row i at i * slabs
    for (int panel = slab * kSlabPanels; panel < std::min(panels, (slab + 1) * kSlabPanels); ++panel) {
      const int first = panel * kPanelColumns;
      const int columns = std::min(kPanelColumns, h.vocabulary - first);
      const T* weights = h.head + panel * panel_elements(h.width);
      const NextPanel next(panel + 1 < panels ? weights + panel_elements(h.width) : nullptr, h.width,
                           (end_row - begin_row + kTileRows - 1) / kTileRows);
      for (int row = begin_row; row < end_row; row += kTileRows) {
        const int rows = std::min(kTileRows, end_row - row);
        const uint64_t* const kept = h.kept ? h.kept + static_cast<size_t>(row) * panels + panel : nullptr;
        if (is_dropped(kept, panels, rows)) continue;
        product_tile(LeftRows<T>{h.hidden + static_cast<size_t>(row) * h.width, static_cast<size_t>(h.width)}, rows,
                     weights, h.width, tile, kPanelColumns * kSideBySide<T>,
                     next.during((row - begin_row) / kTileRows));
        scale_rows(tile, h.logit_scales ? h.logit_scales + row : nullptr, rows);
        hide_padding(tile, rows, columns);
        drop_columns(tile, kept, panels, rows, -INFINITY);
        alignas(64) float tops[kLanes], totals[kLanes] = {};
        std::fill(std::begin(tops), std::end(tops), -INFINITY);
        for (int r = 0; r < rows; ++r) {
          if (is_dropped(kept ? kept + static_cast<size_t>(r) * panels : nullptr, panels, 1)) continue;
          const RunningSum of_panel = sum_of_panel(tile + r * kPanelColumns);
          tops[r] = of_panel.maximum;
          totals[r] = of_panel.sum;
        }
        sums.add(row - begin_row, tops, totals);
        for (int r = 0; r < rows; ++r) {
          const float* logits = tile + r * kPanelColumns;
          if (h.panel_sums) h.panel_sums[static_cast<size_t>(row + r) * panels + panel] = {tops[r], totals[r]};
          SlabResult& result = of_slab[static_cast<size_t>(row + r - begin_row) * slabs];
          if (h.argmax && tops[r] > result.best) {
            result.best = tops[r];
            for (int c = 0; c < columns; ++c) {
              if (logits[c] == tops[r]) {
                result.best_token = first + c;
                break;
              }
            }
          }
          if (h.logits) std::memcpy(h.logits + (row + r) * padded + first, logits, kPanelColumns * sizeof(float));
          for (int i = first_pick[row + r]; i < first_pick[row + r + 1]; ++i) {
            const int column = picks[i].token - first;
            if (column >= 0 && column < columns) logprobs[i] = logits[column];
          }
        }
      }
    }
    for (int row = 0; row < end_row - begin_row; ++row)
      of_slab[static_cast<size_t>(row) * slabs].total = {sums.maximum[row], sums.sum[row]};
  });
  for (int row = 0; row < h.rows; ++row) {
    SlabResult joined = results[static_cast<size_t>(row) * slabs];
    for (int slab = 1; slab < slabs; ++slab) {
      const SlabResult& next = results[static_cast<size_t>(row) * slabs + slab];
      join(joined.total, next.total);
      if (next.best > joined.best) {
        joined.best = next.best;
        joined.best_token = next.best_token;
      }
    }
    const float log_sum = static_cast<float>(joined.total.maximum + std::log(static_cast<double>(joined.total.sum)));
    h.log_sum[row] = log_sum;
    if (h.argmax) h.argmax[row] = joined.best_token;
    for (int i = first_pick[row]; i < first_pick[row + 1]; ++i) logprobs[i] -= log_sum;
  }
}

// In the order of lm_head: by panels, those of a slab joined, then the slabs. What has nothing that is kept adds
// nothing.
inline float kept_log_sum(const float* logits, std::span<const int32_t> kept) {
  RunningSum total, of_slab;
  int slab = 0;
  for (size_t i = 0; i < kept.size();) {
    const int panel = kept[i] / kPanelColumns;
    if (panel / kSlabPanels != slab) {
      join(total, of_slab);
      of_slab = {};
      slab = panel / kSlabPanels;
    }
    alignas(64) float tile[kPanelColumns];
    std::fill(std::begin(tile), std::end(tile), -INFINITY);
    for (; i < kept.size() && kept[i] / kPanelColumns == panel; ++i) tile[kept[i] % kPanelColumns] = logits[kept[i]];
    join(of_slab, sum_of_panel(tile));
  }
  join(total, of_slab);
  return static_cast<float>(total.maximum + std::log(static_cast<double>(total.sum)));
}

// dlogit[v] = scale x sum over the row's picks of g_i ([v == token_i] - p_v), recomputed by slabs of the vocabulary so
// that no more than rows x slab of them exist at once.
inline void lm_head_backward(ThreadPool& threads, const LmHeadBackward& h, std::span<const TokenPick> picks,
                             std::span<const float> grad_logprobs, std::span<float> entropy_rows) {
  const int panels = (h.vocabulary + kPanelColumns - 1) / kPanelColumns;
  const int even_rows = (h.rows + 1) / 2 * 2;
  constexpr int kSlab = 32;  // panels
  std::vector<float> weight_of_row(h.rows, 0);
  for (size_t i = 0; i < picks.size(); ++i) weight_of_row[picks[i].row] += grad_logprobs[i];
  std::vector<bf16> grads(static_cast<size_t>(h.rows) * kSlab * kPanelColumns);          // [rows][slab]
  std::vector<bf16> transposed(static_cast<size_t>(kSlab) * kPanelColumns * even_rows);  // panels of its columns
  std::vector<bf16> packed_hidden(packed_size(h.width, even_rows));                      // for the weight gradient
  pack_transposed(threads, h.hidden, h.rows, h.width, packed_hidden.data());
  std::vector<double> p_log_p(entropy_rows.size(), 0.0);
  std::vector<float> panel_terms(entropy_rows.empty() ? 0 : static_cast<size_t>(kSlab) * h.rows);

  for (int first_panel = 0; first_panel < panels; first_panel += kSlab) {
    const int slab_panels = std::min(kSlab, panels - first_panel);
    const int slab_columns = slab_panels * kPanelColumns;
    const auto drops = [&](int local) {
      return is_dropped(h.kept ? h.kept + first_panel + local : nullptr, panels, h.rows);
    };
    bool all_dropped = h.kept != nullptr;
    for (int local = 0; all_dropped && local < slab_panels; ++local) all_dropped = drops(local);
    if (all_dropped) continue;  // gradients of 0, and nothing of an entropy
    threads.run(slab_panels, [&](int local) {
      const int panel = first_panel + local, first = panel * kPanelColumns;
      const int columns = std::min(kPanelColumns, h.vocabulary - first);
      alignas(64) float tile[kTileRows * kPanelColumns];
      for (int row = 0; row < h.rows; row += kTileRows) {
        const int rows = std::min(kTileRows, h.rows - row);
        const uint64_t* const kept = h.kept ? h.kept + static_cast<size_t>(row) * panels + panel : nullptr;
        if (is_dropped(kept, panels, rows)) {
          for (int r = 0; r < rows; ++r) {
            std::fill_n(grads.data() + static_cast<size_t>(row + r) * slab_columns + local * kPanelColumns,
                        kPanelColumns, bf16{});
            if (!entropy_rows.empty()) panel_terms[static_cast<size_t>(local) * h.rows + row + r] = 0;
          }
          continue;
        }
        product_tile(LeftRows<bf16>{h.hidden + static_cast<size_t>(row) * h.width, static_cast<size_t>(h.width)}, rows,
                     h.head + panel * panel_elements(h.width), h.width, tile);
        const float* const scales = h.logit_scales ? h.logit_scales + row : nullptr;
        scale_rows(tile, scales, rows);
        hide_padding(tile, rows, columns);
        drop_columns(tile, kept, panels, rows, -INFINITY);
        for (int r = 0; r < rows; ++r) {
          float* logits = tile + r * kPanelColumns;
          Float terms = {};
          for (int c = 0; c < kPanelColumns; c += kLanes) {
            const Float logprob = load(logits + c) - broadcast(h.log_sum[row + r]);
            const Float probability = exponential(logprob);
            if (!entropy_rows.empty()) terms = terms + select(probability > Float{}, probability * logprob, Float{});
            store(logits + c, probability * broadcast(-weight_of_row[row + r]));
          }
          if (!entropy_rows.empty()) panel_terms[static_cast<size_t>(local) * h.rows + row + r] = sum(terms);
          const auto mine = std::lower_bound(picks.begin(), picks.end(), row + r,
                                             [](const TokenPick& pick, int wanted) { return pick.row < wanted; });
          for (auto pick = mine; pick != picks.end() && pick->row == row + r; ++pick) {
            const int column = pick->token - first;
            if (column >= 0 && column < columns) logits[column] += grad_logprobs[pick - picks.begin()];
          }
          scale_rows(logits, scales ? scales + r : nullptr, 1);
          drop_columns(logits, kept ? kept + static_cast<size_t>(r) * panels : nullptr, panels, 1, 0);
          bf16* target = grads.data() + static_cast<size_t>(row + r) * slab_columns + local * kPanelColumns;
          for (int c = 0; c < kPanelColumns; c += kLanes) store(target + c, load(logits + c));
        }
      }
      bf16* transposed_panel = transposed.data() + static_cast<size_t>(local) * kPanelColumns * even_rows;
      for (int row = 0; row < even_rows; row += 2) {
        const bf16* low = grads.data() + static_cast<size_t>(row) * slab_columns + local * kPanelColumns;
        for (int c = 0; c < kPanelColumns; c += kLanes) {
          const Bits high = row + 1 < h.rows ? load_halves(low + slab_columns + c) : Bits{};
          const Bits pairs = load_halves(low + c) | high << 16;
          store_bits(transposed_panel + row * kPanelColumns + c * 2, pairs);
        }
      }
    });
    for (size_t row = 0; row < entropy_rows.size(); ++row) {
      for (int local = 0; local < slab_panels; ++local)
        p_log_p[row] += panel_terms[static_cast<size_t>(local) * h.rows + row];
    }
    const int real_columns = std::min(slab_columns, h.vocabulary - first_panel * kPanelColumns);
    const int even_columns = (real_columns + 1) / 2 * 2;  // one past the end has zero gradient and zero weight
    gemm<bf16>(threads, {.a = grads.data(),
                         .a_stride = static_cast<size_t>(slab_columns),
                         .b = h.head_transposed + static_cast<size_t>(first_panel) * kPanelColumns * kPanelColumns,
                         .b_panel_stride = panel_elements(h.vocabulary),
                         .out_float = h.grad_hidden,
                         .out_stride = static_cast<size_t>(h.width),
                         .accumulate = true,
                         .m = h.rows,
                         .n = h.width,
                         .k = even_columns});
    if (h.grad_head == nullptr) continue;
    gemm<bf16>(threads, {.a = transposed.data(),
                         .a_packed = true,
                         .b = packed_hidden.data(),
                         .out_float = h.grad_head + static_cast<size_t>(first_panel) * kPanelColumns * h.width,
                         .out_stride = static_cast<size_t>(h.width),
                         .accumulate = true,
                         .m = real_columns,
                         .n = h.width,
                         .k = even_rows});
  }
  for (size_t row = 0; row < entropy_rows.size(); ++row) entropy_rows[row] = static_cast<float>(-p_log_p[row]);
}

}  // namespace tandem::kernels::TANDEM_ISA
