// Attention on tensor cores for tiles of at most 16 pairs: in each round every warp has a block of keys of its own.
// What a block adds depends on the blocks before it by their maximum alone, so after the round all are joined in order.
#pragma once

#include "kernels/cuda/tensor_attention.cuh"

namespace tandem::kernels::cuda {

template <int Size>
struct TensorDecode : TensorAttention<Size> {
  using Base = TensorAttention<Size>;
  using Base::a;
  using Base::tiling;
  static constexpr int kWarps = Size <= 64 ? 8 : 6;  // as many as have shared memory
  static constexpr int kThreads = kWarps * kWarp;
  static constexpr int kColumnStep = 2 * kWarps;  // a thread has one pair, and every kColumnStep-th column
  static constexpr int kColumns = (Size + kColumnStep - 1) / kColumnStep;
  static constexpr int kGatheredStride = Size + 2;
  static constexpr int kMostRowsAlone = 128, kBlocksOfMany = 264;

  struct Shared {
    Tile<Size> keys[kWarps];
    union {
      Tile<Size> tile;
      float gathered[kWarpRows * kGatheredStride];
    } values[kWarps];
    float largest[kWarps][kWarpRows], kept[kWarps][kWarpRows], sums[kWarps][kWarpRows];
    bool seen[kWarps][kWarpRows];
    int32_t tiles[kThreads];  // rows of the tile that begins at each of so many rows, 0: none
  };
  enum class Stage { kFind, kTake, kScore, kGather, kJoin };
  struct Private {
    Stage stage;
    int64_t looked, found;  // rows of this block of warps that were looked at; the tile among the last of them
    AttentionTile tile;
    AttentionPairs<Size> pairs;
    int round;
    int32_t page, next_page;  // of the warp's block in this round and the next
    Registers<float, 32> scores;
    Registers<float, 2> before;  // the maximum of the blocks before the warp's own
    Registers<float, kColumns> out;
    Registers<float, 2> joined;  // sum and maximum of the thread's pair
  };

  TANDEM_HD explicit TensorDecode(const Base& base) : Base(base) {}
  // Many rows are dealt to a few blocks of warps, since most of them will belong to larger tiles.
  TANDEM_HD int64_t lanes_of_rows() const {
    if (a.rows <= kMostRowsAlone) return a.rows;
    const int64_t some = kBlocksOfMany / (a.kv_heads * tiling.passes);
    return some > 0 ? some : 1;
  }
  int64_t blocks() const { return lanes_of_rows() * a.kv_heads * tiling.passes; }

  TANDEM_HD bool run(int64_t block, int phase, int warp, Shared& shared, Private& own) const {
    const int64_t lanes = lanes_of_rows();
    const int64_t row = block % lanes;
    const int part = static_cast<int>(block / lanes);
    if (phase == 0) {
      own.stage = Stage::kFind;
      own.looked = 0;
    }
    switch (own.stage) {
      case Stage::kFind:
        find(row + own.looked * lanes, lanes, warp, shared);
        own.looked += kThreads;
        own.found = -1;
        own.stage = Stage::kTake;
        return true;
      case Stage::kTake:
        return take(row, lanes, part, warp, shared, own);
      case Stage::kScore:
        score_block(warp, shared, own);
        own.stage = Stage::kGather;
        return true;
      case Stage::kGather:
        gather_block(warp, shared, own);
        own.stage = Stage::kJoin;
        return true;
      default:
        join(warp, shared, own);
        own.page = own.next_page;
        ++own.round;
        own.stage = Stage::kScore;
        if (begin_of(own.tile, own.round, 0) < own.tile.end) return true;
        write(warp, own);
        own.stage = Stage::kTake;
        return true;
    }
  }

 private:
  // The rows of the tile of few rows that begins at `row`, or 0.
  TANDEM_HD int tile_at(int64_t row) const {
    if (row % tiling.rows != 0 && this->goes_on(row)) return 0;
    int rows = 1;
    while ((row + rows) % tiling.rows != 0 && row + rows < a.rows && this->goes_on(row + rows)) {
      if (++rows > tiling.few()) return 0;
    }
    return rows;
  }
  TANDEM_HD void find(int64_t row, int64_t lanes, int warp, Shared& shared) const {
    each_lane([&](int lane) {
      const int thread = warp * kWarp + lane;
      const int64_t at = row + thread * lanes;
      shared.tiles[thread] = at < a.rows ? tile_at(at) : 0;
    });
  }
  // The next tile that was found, and the keys of its first round; else the next rows to look at, or the end.
  TANDEM_HD bool take(int64_t row, int64_t lanes, int part, int warp, Shared& shared, Private& own) const {
    while (++own.found < kThreads) {
      const int rows = shared.tiles[own.found];
      if (rows == 0) continue;
      const int64_t at = row + (own.looked - kThreads + own.found) * lanes;
      own.tile = this->tile_of(at, rows, part / tiling.passes, part % tiling.passes);
      if (own.tile.end <= 0) continue;
      start(warp, shared, own);
      return true;
    }
    own.stage = Stage::kFind;
    return row + own.looked * lanes < a.rows;
  }
  TANDEM_HD void start(int warp, Shared& shared, Private& own) const {
    own.round = 0;
    own.stage = Stage::kScore;
    const int begin = begin_of(own.tile, 0, warp);
    own.page = this->page_of(own.tile, begin);
    ask<false>(own.tile, own.page, begin, shared.keys[warp]);
    this->begin(own.tile, 0, own.pairs);
    each_lane([&](int lane) {
      TANDEM_UNROLL
      for (int i = 0; i < kColumns; ++i) own.out.at(lane, i) = 0;
      own.joined.at(lane, 0) = 0;
      own.joined.at(lane, 1) = -infinity();
    });
  }
  TANDEM_HD static int begin_of(const AttentionTile& tile, int round, int warp) {
    return (tile.first / kKeyBlock + round * kWarps + warp) * kKeyBlock;
  }
  template <bool Values>
  TANDEM_HD void ask(const AttentionTile& tile, int32_t page, int begin, Tile<Size>& to) const {
    if (begin < tile.end) this->template copy<Values, 1>(tile, page, begin, 0, to);
    end_of_copies();
  }

  TANDEM_HD void score_block(int warp, Shared& shared, Private& own) const {
    const int begin = begin_of(own.tile, own.round, warp), next = begin_of(own.tile, own.round + 1, warp);
    ask<true>(own.tile, own.page, begin, shared.values[warp].tile);
    own.next_page = this->page_of(own.tile, next);
    wait_for_copies<1>();
    end_of_warp_writes();
    Registers<float, 2> largest;
    if (begin < own.tile.end) {
      this->template score<false>(own.pairs, shared.keys[warp], begin, own.scores, largest);
    } else {
      each_lane([&](int lane) { largest.at(lane, 0) = largest.at(lane, 1) = -infinity(); });
    }
    each_lane([&](int lane) {
      if (lane % 4 != 0) return;
      TANDEM_UNROLL
      for (int half = 0; half < 2; ++half) shared.largest[warp][lane / 4 + 8 * half] = largest.at(lane, half);
    });
    end_of_warp_writes();  // nor is the tile read any more
    ask<false>(own.tile, own.next_page, next, shared.keys[warp]);
  }

  TANDEM_HD void gather_block(int warp, Shared& shared, Private& own) const {
    const int begin = begin_of(own.tile, own.round, warp);
    Registers<float, 2> less, sums;
    Registers<int, 2> seen;
    each_lane([&](int lane) {
      TANDEM_UNROLL
      for (int half = 0; half < 2; ++half) {
        const int pair = lane / 4 + 8 * half;
        float maximum = own.pairs.maximum.at(lane, half), before = maximum, next = maximum;
        TANDEM_UNROLL
        for (int other = 0; other < kWarps; ++other) {
          before = other == warp ? maximum : before;
          maximum = larger(maximum, shared.largest[other][pair]);
          next = other == warp ? maximum : next;
        }
        own.pairs.maximum.at(lane, half) = maximum;
        const bool sees = Base::sees(own.pairs.first.at(lane, half), own.pairs.end.at(lane, half), begin);
        seen.at(lane, half) = sees;
        less.at(lane, half) = sees ? next : 0.0f;
        if (lane % 4 != 0) continue;
        shared.seen[warp][pair] = sees;
        shared.kept[warp][pair] = before == -infinity() ? 0.0f : exponential(before - next);
      }
    });
    wait_for_copies<1>();
    end_of_warp_writes();
    if (begin >= own.tile.end) return;
    Base::weigh(own.scores, less, sums);
    Registers<uint32_t, 16> weights;
    as_weights(weights, [&](int lane, int i) { return own.scores.at(lane, i); });
    Registers<float, Size / 2> all;
    gather(weights, shared.values[warp].tile, [&](int c, const Registers<float, 16>& gathered) {
      each_lane([&](int lane) {
        TANDEM_UNROLL
        for (int i = 0; i < 16; ++i) all.at(lane, 16 * c + i) = gathered.at(lane, i);
      });
    });
    end_of_warp_writes();  // the tile is read no more: its place is taken
    each_lane([&](int lane) {
      TANDEM_UNROLL
      for (int half = 0; half < 2; ++half) {
        const int pair = lane / 4 + 8 * half;
        if (!seen.at(lane, half)) continue;
        if (lane % 4 == 0) shared.sums[warp][pair] = sums.at(lane, half);
        float* to = shared.values[warp].gathered + pair * kGatheredStride + lane % 4 * 2;
        TANDEM_UNROLL
        for (int n = 0; n < Size / 8; ++n) {
          to[8 * n] = all.at(lane, 4 * n + 2 * half);
          to[8 * n + 1] = all.at(lane, 4 * n + 2 * half + 1);
        }
      }
    });
  }

  TANDEM_HD static int pair_of_thread(int warp, int lane) { return (warp * kWarp + lane) % kWarpRows; }
  TANDEM_HD static int column_of_thread(int warp, int lane) { return (warp * kWarp + lane) / kWarpRows; }

  TANDEM_HD void join(int warp, const Shared& shared, Private& own) const {
    each_lane([&](int lane) {
      const int pair = pair_of_thread(warp, lane), column = column_of_thread(warp, lane);
      for (int other = 0; other < kWarps; ++other) {
        if (!shared.seen[other][pair]) continue;
        const float kept = shared.kept[other][pair];
        const float* from = shared.values[other].gathered + pair * kGatheredStride + column;
        own.joined.at(lane, 0) = own.joined.at(lane, 0) * kept + shared.sums[other][pair];
        own.joined.at(lane, 1) = larger(own.joined.at(lane, 1), shared.largest[other][pair]);
        TANDEM_UNROLL
        for (int i = 0; i < kColumns; ++i) {
          if (column + i * kColumnStep < Size) own.out.at(lane, i) = own.out.at(lane, i) * kept + from[i * kColumnStep];
        }
      }
    });
  }
  TANDEM_HD void write(int warp, const Private& own) const {
    const int value_size = value_size_of(a);
    each_lane([&](int lane) {
      const int pair = pair_of_thread(warp, lane), column = column_of_thread(warp, lane);
      if (!own.tile.has(pair)) return;
      const int64_t row = own.tile.row + own.tile.row_of(pair);
      if (a.pages.positions[row] < 0) return;
      const int head = own.tile.head_of(pair);
      uint16_t* out = a.out + row * a.out_stride + static_cast<int64_t>(head) * value_size;
      TANDEM_UNROLL
      for (int i = 0; i < kColumns; ++i) {
        const int at = column + i * kColumnStep;
        if (at < value_size) out[at] = to_bf16_bits(own.out.at(lane, i) / own.joined.at(lane, 0));
      }
      if (column == 0 && a.log_sum) {
        a.log_sum[row * a.heads + head] = log_of_sum(own.joined.at(lane, 1), own.joined.at(lane, 0));
      }
    });
  }
};

}  // namespace tandem::kernels::cuda
