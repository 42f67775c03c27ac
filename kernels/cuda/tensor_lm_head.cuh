// Logits of a tensor stream by panels of the vocabulary, and what becomes of them: a warp has whole rows of a panel in
// its registers, so maxima, sums of e^x and gradients need no other memory. All but the products is that of
// lm_head.cuh and lm_head_backward.cuh, to the bit.
#pragma once

#include "kernels/cuda/panels.cuh"
#include "kernels/cuda/tensor_tile.cuh"

namespace tandem::kernels::cuda {

// The order of sum_of_block over 64 columns whose terms lie as mma leaves a row's: column 8 across + 2 t + second. A
// lane has columns 2t, 2t + 1, 2t + 8 and 2t + 9 of every sixteen, so it adds four of the 16 lanes up, and the first
// two of each pair that the tree joins.
template <typename Term>
TANDEM_HD float own_part_of_block(const Term& term, int second) {
  float low = 0, high = 0;
  TANDEM_UNROLL
  for (int across = 0; across < 8; across += 2) {
    low = low + term(across, second);
    high = high + term(across + 1, second);
  }
  return low + high;
}

// The sum of a row's 64 columns in `terms`, on each of its four lanes: a lane has those at `at` and the next.
template <int N>
TANDEM_HD float joined_sum(Registers<float, N>& parts, int lane, int at) {
  return parts.at(lane, at) + parts.at(lane, at + 1);
}

// What the logits of a row are multiplied by.
TANDEM_HD float scale_of(const float* scales, int64_t row, int rows) {
  return scales && row < rows ? scales[row] : 1.0f;
}

// The tokens of a panel that a row keeps, a bit each.
TANDEM_HD uint64_t kept_of(const uint64_t* kept, int64_t row, int rows, int64_t panel, int vocabulary) {
  return kept && row < rows ? kept[row * panels_of(vocabulary) + panel] : ~uint64_t{0};
}
TANDEM_HD bool keeps(uint64_t word, int column) { return (word >> column & 1) != 0; }

// Rows by one panel: logits in registers, where `Row` finds those of a row, half of the eight lanes' rows at a time.
template <typename Row, int Rows, int Down>
struct TensorLogits {
  using Tile = TensorTile<Rows, kPanel, Down, 1, true, true, Rows == 16 ? 5 : 3>;
  using Workers = typename Tile::Workers;
  using Shared = typename Tile::Shared;
  using Private = typename Tile::Private;
  Row row;
  const uint16_t* hidden;
  const uint16_t* head;
  int rows, width, vocabulary;
  int first_panel, panels;  // which of the vocabulary
  const float* scales;      // of each row, or null
  const uint64_t* kept;     // of each row, or null

  TANDEM_HD int64_t blocks() const { return pieces(rows, Rows) * panels; }
  TANDEM_HD bool run(int64_t block, int phase, int warp, Shared& shared, Private& own) const {
    const Tile product{operand(hidden, width, 1, rows), operand(head, width, 1, vocabulary), width};
    // Blocks that are under way at one time read one panel of the head, for all rows.
    const int row_tiles = static_cast<int>(pieces(rows, Rows));
    const int first_row = static_cast<int>(block % row_tiles) * Rows;
    const int panel = first_panel + static_cast<int>(block / row_tiles);
    if (phase < product.phases()) {
      product.run(first_row, panel * kPanel, phase, warp, shared, own);
      return true;
    }
    TANDEM_UNROLL
    for (int down = 0; down < Tile::kDown; ++down) {
      TANDEM_UNROLL
      for (int half = 0; half < 2; ++half) {
        Registers<float, 16> logits;
        Registers<int, 1> of_row;
        each_lane([&](int lane) {
          of_row.at(lane, 0) = first_row + Tile::row_of(warp, lane, down, half);
          const float scale = scale_of(scales, of_row.at(lane, 0), rows);
          const uint64_t word = kept_of(kept, of_row.at(lane, 0), rows, panel, vocabulary);
          TANDEM_UNROLL
          for (int i = 0; i < 16; ++i) {
            const int within = Tile::column_of(warp, lane, i / 2, i % 2), column = panel * kPanel + within;
            logits.at(lane, i) = column < vocabulary && keeps(word, within)
                                     ? own.sums.at(lane, Tile::sum_at(down, i / 2) + half * 2 + i % 2) * scale
                                     : -infinity();
          }
        });
        row(of_row, rows, panel, logits);
      }
    }
    return false;
  }
};
// The column of a panel that a lane's logit i is of.
TANDEM_HD int column_of_logit(int lane, int i) { return i / 2 * 8 + lane % 4 * 2 + i % 2; }

// What PanelOfRow makes of a row.
struct TensorPanelSums {
  TandemCudaLmHead h;
  PanelSum* sums;  // [rows][panels]
  TANDEM_HD void operator()(const Registers<int, 1>& of_row, int rows, int panel, Registers<float, 16>& logits) const {
    Registers<float, 4> parts;  // the maximum; two parts of the sum; the first column of the maximum
    each_lane([&](int lane) {
      float maximum = -infinity();
      TANDEM_UNROLL
      for (int i = 0; i < 16; ++i) maximum = logits.at(lane, i) > maximum ? logits.at(lane, i) : maximum;
      parts.at(lane, 0) = maximum;
    });
    join_quads(parts, 0, [](float a, float b) { return larger(a, b); });
    each_lane([&](int lane) {
      const float maximum = parts.at(lane, 0);
      float best = kPanel;
      TANDEM_UNROLL
      for (int i = 15; i >= 0; --i)
        best = logits.at(lane, i) == maximum ? static_cast<float>(column_of_logit(lane, i)) : best;
      parts.at(lane, 3) = best;
      const auto term = [&](int across, int second) {
        return exponential(logits.at(lane, across * 2 + second) - maximum);
      };
      parts.at(lane, 1) = own_part_of_block(term, 0);
      parts.at(lane, 2) = own_part_of_block(term, 1);
    });
    join_quads(parts, 1, [](float a, float b) { return a + b; });
    join_quads(parts, 2, [](float a, float b) { return a + b; });
    join_quads(parts, 3, [](float a, float b) { return a < b ? a : b; });
    each_lane([&](int lane) {
      const int row = of_row.at(lane, 0);
      if (row >= rows) return;
      const int64_t at = row * panels_of(h.vocabulary) + panel;
      if (lane % 4 == 0) {
        const int best = static_cast<int>(parts.at(lane, 3));
        const PanelSum result{parts.at(lane, 0), joined_sum(parts, lane, 1),
                              panel * kPanel + (best < kPanel ? best : 0)};
        sums[at] = result;
        if (h.panel_sums) {
          h.panel_sums[at * 2] = result.maximum;
          h.panel_sums[at * 2 + 1] = result.sum;
        }
      }
      if (!h.logits) return;
      TANDEM_UNROLL
      for (int i = 0; i < 16; ++i) h.logits[at * kPanel + column_of_logit(lane, i)] = logits.at(lane, i);
    });
  }
};

// The logits of picks are formed again: eight a warp, of whose products the diagonal is what is wanted.
struct TensorPickedLogprobs {
  static constexpr int kWarps = 1, kPicks = 8;
  using Shared = Nothing;
  using Private = Nothing;
  TandemCudaLmHead h;
  TANDEM_HD bool run(int64_t block, int, int, Shared&, Private&) const {
    Registers<float, 4> sums;
    each_lane([&](int lane) {
      TANDEM_UNROLL
      for (int i = 0; i < 4; ++i) sums.at(lane, i) = 0;
    });
    for (int k = 0; k < h.width; k += 16) {
      Registers<uint32_t, 4> rows;
      Registers<uint32_t, 2> columns;
      each_lane([&](int lane) {
        const int64_t i = block * kPicks + lane / 4;
        const bool there = i < h.pick_count && inside(h.picks[i]);
        TANDEM_UNROLL
        for (int half = 0; half < 2; ++half) {
          const int at = k + half * 8 + lane % 4 * 2;
          rows.at(lane, half * 2) = there ? two(h.hidden + h.picks[i].row * int64_t{h.width}, at) : 0;
          rows.at(lane, half * 2 + 1) = 0;
          columns.at(lane, half) = there ? two(h.head + h.picks[i].token * int64_t{h.width}, at) : 0;
        }
      });
      multiply(sums, 0, rows, 0, columns, 0);
    }
    each_lane([&](int lane) {
      const int64_t i = block * kPicks + lane / 4;
      if (i >= h.pick_count || lane / 8 != lane % 4) return;  // column 2t or 2t + 1 of row g
      const float logit = lane / 4 % 2 == 0 ? sums.at(lane, 0) : sums.at(lane, 1);
      const TandemCudaPick& pick = h.picks[i];
      if (!inside(pick)) {
        h.logprobs[i] = not_a_number();
        return;
      }
      const uint64_t word = kept_of(h.kept, pick.row, h.rows, pick.token / kPanel, h.vocabulary);
      h.logprobs[i] = keeps(word, pick.token % kPanel)
                          ? logit * scale_of(h.logit_scales, pick.row, h.rows) - h.log_sum[pick.row]
                          : -infinity();
    });
    return false;
  }

 private:
  TANDEM_HD bool inside(const TandemCudaPick& pick) const {
    return pick.row >= 0 && pick.row < h.rows && pick.token >= 0 && pick.token < h.vocabulary;
  }
  TANDEM_HD uint32_t two(const uint16_t* row, int at) const {
    return pair_of_bf16(at < h.width ? row[at] : 0, at + 1 < h.width ? row[at + 1] : 0);
  }
};

template <typename Row, typename Execution, typename Arguments>
int run_tensor_logits(Execution& execution, const Row& row, const Arguments& h, int first_panel, int panels) {
  const auto run = [&](const auto& kernel) { return start(execution, kernel, kernel.blocks()); };
  if (h.rows <= 16)
    return run(TensorLogits<Row, 16, 1>{row, h.hidden, h.head, h.rows, h.width, h.vocabulary, first_panel, panels,
                                        h.logit_scales, h.kept});
  if (h.rows <= 64)
    return run(TensorLogits<Row, 64, 4>{row, h.hidden, h.head, h.rows, h.width, h.vocabulary, first_panel, panels,
                                        h.logit_scales, h.kept});
  return run(TensorLogits<Row, 128, 4>{row, h.hidden, h.head, h.rows, h.width, h.vocabulary, first_panel, panels,
                                       h.logit_scales, h.kept});
}

}  // namespace tandem::kernels::cuda
