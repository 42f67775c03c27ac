// From hidden states to log-probabilities, and back: formulas and order of additions of kernels/lm_head.h and
// kernels/cpu/lm_head.inl. The vocabulary goes by panels of 64 columns, 64 x 64 logits at a time; logits are stored
// only where they are asked for. A pick's logit is formed anew, by the same chain and so with the same bits.
#pragma once

#include "kernels/cuda/gemm.cuh"
#include "kernels/cuda/tensor_lm_head.cuh"

namespace tandem::kernels::cuda {

static_assert(kPanel == ProductTile::kSide);

// 64 rows by one panel: logits in shared memory, where `Row` finds those of a row.
template <typename Row, typename T>
struct LogitTiles {
  static constexpr int kThreads = ProductTile::kThreads;
  static constexpr int kWidth = kPanel + 1;  // one apart, so that threads that walk along rows use all banks
  struct Shared {
    ProductTile::Shared product;
    float logits[kPanel * kWidth];
  };
  using Private = ProductTile::Private;
  Row row;
  const T* hidden;
  const T* head;
  int rows, width, vocabulary;
  int first_panel, panels;  // which of the vocabulary
  const float* scales;      // of each row, or null
  const uint64_t* kept;     // of each row, or null

  TANDEM_HD int64_t blocks() const { return pieces(rows, ProductTile::kSide) * panels; }
  TANDEM_HD bool run(int64_t block, int phase, int thread, Shared& shared, Private& own) const {
    const ProductTile product{operand(hidden, width, 1, rows), operand(head, width, 1, vocabulary), width};
    const int first_row = static_cast<int>(block / panels) * ProductTile::kSide;
    const int panel = first_panel + static_cast<int>(block % panels), first = panel * kPanel;
    if (phase < product.phases()) {
      product.run(first_row, first, phase, thread, shared.product, own);
      return true;
    }
    if (phase == product.phases()) {
      for (int i = 0; i < ProductTile::kOwn; ++i) {
        const int row_of = ProductTile::row_of(thread, i);
        const float scale = scale_of(scales, first_row + row_of, rows);
        const uint64_t word = kept_of(kept, first_row + row_of, rows, panel, vocabulary);
        for (int j = 0; j < ProductTile::kOwn; ++j) {
          const int column = ProductTile::column_of(thread, j);
          shared.logits[row_of * kWidth + column] =
              first + column < vocabulary && keeps(word, column) ? own.sums[i][j] * scale : -infinity();
        }
      }
      return true;
    }
    if (thread < kPanel && first_row + thread < rows) row(first_row + thread, panel, shared.logits + thread * kWidth);
    return false;
  }
};

// Takes logits that are -infinity where they count for nothing.
TANDEM_HD PanelSum sum_of_panel(const float* logits, int first) {
  PanelSum result{-infinity(), 0, first};
  for (int column = 0; column < kPanel; ++column) {
    if (logits[column] > result.maximum) {
      result.maximum = logits[column];
      result.best = first + column;
    }
  }
  float terms[kPanel];
  for (int column = 0; column < kPanel; ++column) terms[column] = exponential(logits[column] - result.maximum);
  result.sum = sum_of_block(terms);
  return result;
}

template <typename Arguments>
struct PanelOfRow {
  Arguments h;
  PanelSum* sums;  // [rows][panels]
  TANDEM_HD void operator()(int64_t row, int panel, const float* logits) const {
    const PanelSum result = sum_of_panel(logits, panel * kPanel);
    const int64_t at = row * panels_of(h.vocabulary) + panel;
    sums[at] = result;
    if (h.panel_sums) {
      h.panel_sums[at * 2] = result.maximum;
      h.panel_sums[at * 2 + 1] = result.sum;
    }
    if (h.logits) {
      for (int column = 0; column < kPanel; ++column) h.logits[at * kPanel + column] = logits[column];
    }
  }
};

TANDEM_HD int64_t slabs_of(int vocabulary) { return pieces(panels_of(vocabulary), kSlabPanels); }

struct JoinedSlab {
  const PanelSum* sums;  // [rows][panels]
  PanelSum* slabs;       // [rows][slabs]
  int vocabulary;
  TANDEM_HD void operator()(int64_t i) const {
    const int64_t panels = panels_of(vocabulary), row = i / slabs_of(vocabulary);
    const int64_t slab = i % slabs_of(vocabulary) * kSlabPanels;
    PanelSum of_slab{-infinity(), 0, 0};
    for (int64_t panel = slab; panel < panels && panel < slab + kSlabPanels; ++panel) {
      join(of_slab, sums[row * panels + panel]);
    }
    slabs[i] = of_slab;
  }
};

template <typename Arguments>
struct RowOfSlabs {
  Arguments h;
  const PanelSum* slabs;
  TANDEM_HD void operator()(int64_t row) const {
    const int64_t count = slabs_of(h.vocabulary);
    PanelSum total = slabs[row * count];
    for (int64_t slab = 1; slab < count; ++slab) join(total, slabs[row * count + slab]);
    h.log_sum[row] = log_of_sum(total.maximum, total.sum);
    if (h.argmax) h.argmax[row] = total.best;
  }
};

template <typename Arguments>
struct PickedLogprob {
  Arguments h;
  TANDEM_HD void operator()(int64_t i) const {
    const TandemCudaPick pick = h.picks[i];
    const bool there = pick.row >= 0 && pick.row < h.rows && pick.token >= 0 && pick.token < h.vocabulary;
    const bool kept =
        there && keeps(kept_of(h.kept, pick.row, h.rows, pick.token / kPanel, h.vocabulary), pick.token % kPanel);
    if (there && !kept) {
      h.logprobs[i] = -infinity();
      return;
    }
    h.logprobs[i] = there ? dot(h.hidden + static_cast<int64_t>(pick.row) * h.width,
                                h.head + static_cast<int64_t>(pick.token) * h.width, h.width) *
                                    scale_of(h.logit_scales, pick.row, h.rows) -
                                h.log_sum[pick.row]
                          : not_a_number();
  }
};

inline size_t lm_head_workspace(int rows, int vocabulary) {
  return static_cast<size_t>(rows) * (panels_of(vocabulary) + slabs_of(vocabulary)) * sizeof(PanelSum);
}
template <typename Execution, OneOf<TandemCudaLmHead, TandemCudaLmHeadFloat> Arguments>
int operate(Execution& execution, const Arguments& h) {
  if (!h.hidden || !h.head || !h.log_sum || !h.workspace) return kTandemCudaNull;
  if (h.pick_count > 0 && (!h.picks || !h.logprobs)) return kTandemCudaNull;
  if (h.rows < 0 || h.width <= 0 || h.vocabulary <= 0 || h.pick_count < 0) return kTandemCudaSize;
  if (h.workspace_bytes < lm_head_workspace(h.rows, h.vocabulary)) return kTandemCudaWorkspace;
  PanelSum* sums = static_cast<PanelSum*>(h.workspace);
  using T = std::remove_const_t<std::remove_reference_t<decltype(*h.hidden)>>;
  const LogitTiles<PanelOfRow<Arguments>, T> tiles{
      {h, sums},      h.hidden, h.head, h.rows, h.width, h.vocabulary, 0, static_cast<int>(panels_of(h.vocabulary)),
      h.logit_scales, h.kept};
  PanelSum* const slabs = sums + h.rows * panels_of(h.vocabulary);
  bool tensor = false;
  if constexpr (std::is_same_v<Arguments, TandemCudaLmHead>) tensor = execution.tensor();
  return in_order(
      [&] {
        if constexpr (std::is_same_v<Arguments, TandemCudaLmHead>) {
          if (tensor)
            return run_tensor_logits(execution, TensorPanelSums{h, sums}, h, 0,
                                     static_cast<int>(panels_of(h.vocabulary)));
        }
        return start(execution, tiles, tiles.blocks());
      },
      [&] {
        return each_element(execution, h.rows * slabs_of(h.vocabulary), JoinedSlab{sums, slabs, h.vocabulary});
      },
      [&] {
        return each_element(execution, h.rows, RowOfSlabs<Arguments>{h, slabs});
      },
      [&] {
        if constexpr (std::is_same_v<Arguments, TandemCudaLmHead>) {
          if (tensor)
            return start(execution, TensorPickedLogprobs{h}, pieces(h.pick_count, TensorPickedLogprobs::kPicks));
        }
        return each_element(execution, h.pick_count, PickedLogprob<Arguments>{h});
      });
}

}  // namespace tandem::kernels::cuda
