// Attention on tensor cores for tiles of many pairs: warps share a tile's blocks of keys, each has 16 pairs.
#pragma once

#include "kernels/cuda/tensor_attention.cuh"

namespace tandem::kernels::cuda {

template <int Size>
struct TensorPrefill : TensorAttention<Size> {
  using Base = TensorAttention<Size>;
  using Base::a;
  using Base::tiling;
  static constexpr int kWarps = 4;
  static constexpr int kPairs = kWarps * kWarpRows;

  struct Shared {
    Tile<Size> keys[2], values[2];  // of a block, and of the next
    AttentionTile tile;
    bool begins[kPairs];  // of the rows that a block of warps goes over: whether a tile begins here
  };
  struct Private {
    AttentionPairs<Size> pairs;
    int next;                    // row behind the tile
    int step, steps;             // blocks of keys; -1: no tile
    int32_t page;                // of the block that is asked for next
    int first, end;              // positions that some pair of the warp sees
    int whole_first, whole_end;  // positions that all of them see
    Registers<float, Size / 2> out;
    Registers<float, 2> sum;
  };

  TANDEM_HD explicit TensorPrefill(const Base& base) : Base(base) {}
  int64_t blocks() const { return pieces(a.rows, tiling.rows) * a.kv_heads * tiling.passes; }

  // One phase for where tiles begin, then for each tile one to ask for its first block and one for each block.
  TANDEM_HD bool run(int64_t block, int phase, int warp, Shared& shared, Private& own) const {
    const int64_t ranges = pieces(a.rows, tiling.rows);
    const int part = static_cast<int>(block % (a.kv_heads * tiling.passes));
    const int64_t range = (ranges - 1 - block / (a.kv_heads * tiling.passes)) * tiling.rows;  // the longest first
    const int rows = static_cast<int>(a.rows - range < tiling.rows ? a.rows - range : tiling.rows);
    if (phase == 0) {
      each_lane([&](int lane) {
        const int i = warp * kWarp + lane;
        if (i < rows) shared.begins[i] = i == 0 || !this->goes_on(range + i);
      });
      own.next = 0;
      own.step = -1;
      return true;
    }
    if (own.step < 0) {
      if (!next_tile(range, rows, part, warp, shared, own)) return false;
    } else {
      if (own.step + 1 < own.steps) ask(shared.tile, own.step + 1, warp, shared, own);
      const int begin = begin_of(shared.tile, own.step);
      if (begin >= own.whole_first && begin + kKeyBlock <= own.whole_end)
        add<true>(begin, shared, own);
      else if (Base::sees(own.first, own.end, begin))
        add<false>(begin, shared, own);
      if (++own.step == own.steps) {
        write(warp, shared.tile, own);
        own.step = -1;
        return true;
      }
    }
    if (own.step < 0) own.step = 0;
    wait_for_copies<0>();
    return true;
  }

 private:
  TANDEM_HD bool next_tile(int64_t range, int rows, int part, int warp, Shared& shared, Private& own) const {
    while (own.next < rows) {
      const int begin = own.next;
      own.next = rows;
      TANDEM_UNROLL_8
      for (int i = rows - 1; i > begin; --i) own.next = shared.begins[i] ? i : own.next;
      if (own.next - begin <= tiling.few()) continue;
      const AttentionTile tile =
          this->tile_of(range + begin, own.next - begin, part / tiling.passes, part % tiling.passes);
      if (tile.end <= 0) continue;
      start(tile, warp, shared, own);
      return true;
    }
    return false;
  }
  TANDEM_HD void start(const AttentionTile& tile, int warp, Shared& shared, Private& own) const {
    if (warp == 0) shared.tile = tile;
    own.steps = (tile.end - 1) / kKeyBlock - tile.first / kKeyBlock + 1;
    own.page = this->page_of(tile, tile.first);
    const int from = tile.row_of(warp * kWarpRows), to = tile.row_of(warp * kWarpRows + kWarpRows - 1);
    own.first = first_seen(a.window, tile.position + from);
    own.end = from < tile.rows ? tile.position + smaller(to + 1, tile.rows) : 0;
    own.whole_first = first_seen(a.window, own.end - 1);
    own.whole_end = tile.position + from + 1;
    this->begin(tile, warp * kWarpRows, own.pairs);
    clear(own.out);
    clear(own.sum);
    ask(tile, 0, warp, shared, own);
  }
  TANDEM_HD static int begin_of(const AttentionTile& tile, int step) {
    return (tile.first / kKeyBlock + step) * kKeyBlock;
  }
  TANDEM_HD void ask(const AttentionTile& tile, int step, int warp, Shared& shared, Private& own) const {
    const int begin = begin_of(tile, step);
    this->template copy<false, kWarps>(tile, own.page, begin, warp, shared.keys[step % 2]);
    this->template copy<true, kWarps>(tile, own.page, begin, warp, shared.values[step % 2]);
    end_of_copies();
    own.page = this->page_of(tile, begin + kKeyBlock);
  }

  template <bool Whole>
  TANDEM_HD void add(int begin, const Shared& shared, Private& own) const {
    AttentionPairs<Size>& pairs = own.pairs;
    Registers<float, 32> scores;
    Registers<float, 2> largest, less, kept, sums;
    Registers<int, 2> seen;
    this->template score<Whole>(pairs, shared.keys[own.step % 2], begin, scores, largest);
    each_lane([&](int lane) {
      TANDEM_UNROLL
      for (int half = 0; half < 2; ++half) {
        const float before = pairs.maximum.at(lane, half), next = larger(before, largest.at(lane, half));
        seen.at(lane, half) = Whole || Base::sees(pairs.first.at(lane, half), pairs.end.at(lane, half), begin);
        kept.at(lane, half) = before == -infinity() ? 0.0f : exponential(before - next);
        less.at(lane, half) = seen.at(lane, half) ? next : 0.0f;
        pairs.maximum.at(lane, half) = next;
      }
    });
    Base::weigh(scores, less, sums);
    Registers<uint32_t, 16> weights;
    as_weights(weights, [&](int lane, int i) { return scores.at(lane, i); });
    each_lane([&](int lane) {
      TANDEM_UNROLL
      for (int half = 0; half < 2; ++half) {
        const float sum = own.sum.at(lane, half);
        own.sum.at(lane, half) = seen.at(lane, half) ? sum * kept.at(lane, half) + sums.at(lane, half) : sum;
      }
    });
    gather(weights, shared.values[own.step % 2], [&](int c, const Registers<float, 16>& gathered) {
      each_lane([&](int lane) {
        TANDEM_UNROLL
        for (int i = 0; i < 16; ++i) {
          const float out = own.out.at(lane, 16 * c + i);
          own.out.at(lane, 16 * c + i) =
              seen.at(lane, i / 2 % 2) ? out * kept.at(lane, i / 2 % 2) + gathered.at(lane, i) : out;
        }
      });
    });
  }

  TANDEM_HD void write(int warp, const AttentionTile& tile, const Private& own) const {
    const int value_size = value_size_of(a);
    each_lane([&](int lane) {
      TANDEM_UNROLL
      for (int half = 0; half < 2; ++half) {
        const int pair = warp * kWarpRows + lane / 4 + 8 * half;
        if (own.pairs.end.at(lane, half) <= 0) continue;
        const int64_t row = tile.row + tile.row_of(pair);
        const int head = tile.head_of(pair);
        uint16_t* out = a.out + row * a.out_stride + static_cast<int64_t>(head) * value_size;
        const float sum = own.sum.at(lane, half);
        TANDEM_UNROLL
        for (int n = 0; n < Size / 8; ++n) {
          const int column = 8 * n + lane % 4 * 2;
          if (column >= value_size) continue;
          out[column] = to_bf16_bits(own.out.at(lane, 4 * n + 2 * half) / sum);
          out[column + 1] = to_bf16_bits(own.out.at(lane, 4 * n + 2 * half + 1) / sum);
        }
        if (lane % 4 == 0 && a.log_sum) {
          a.log_sum[row * a.heads + head] = log_of_sum(own.pairs.maximum.at(lane, half), sum);
        }
      }
    });
  }
};

}  // namespace tandem::kernels::cuda
