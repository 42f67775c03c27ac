// The gradient of queries on tensor cores: tiles of rows of one run and one head, over blocks of 64 keys of their path.
#pragma once

#include "kernels/cuda/attention_backward.cuh"
#include "kernels/cuda/tensor_tiles.cuh"

namespace tandem::kernels::cuda {

// What both gradients start from.
struct TensorBackward {
  TandemCudaAttentionBackward a;
  const float* delta;
  bool aligned;  // everything by 16 bytes

  TANDEM_HD const uint16_t* query_at(int64_t row, int head) const {
    return a.queries + row * a.stride + static_cast<int64_t>(head) * a.head_size;
  }
  TANDEM_HD const uint16_t* grad_at(int64_t row, int head) const {
    return a.grad_out + (row * a.heads + head) * value_size_of(a);
  }
  TANDEM_HD const uint16_t* key_at(int64_t row, int kv_head) const {
    return a.keys + row * a.stride + static_cast<int64_t>(kv_head) * a.head_size;
  }
  TANDEM_HD const uint16_t* value_at(int64_t row, int kv_head) const {
    return a.values + row * a.stride + static_cast<int64_t>(kv_head) * value_size_of(a);
  }
  TANDEM_HD bool sees(int query, int key) const { return query >= key && first_seen(a.window, query) <= key; }
};
// As pair_of has them.
TANDEM_HD float probability_of(float score, float scale, float log_sum) { return exponential(score * scale - log_sum); }
TANDEM_HD float gradient_of(float probability, float grad, float delta, float scale) {
  return probability * (grad - delta) * scale;
}

// Rows g and g + 8 of a warp's 16, as sums 4 n + i of their columns 8 n + 2 t + i % 2 are written out.
template <int Size, typename RowOf>
TANDEM_HD void write_rows(const Registers<float, Size / 2>& sums, int size, const RowOf& row_of) {
  each_lane([&](int lane) {
    TANDEM_UNROLL
    for (int half = 0; half < 2; ++half) {
      uint16_t* out = row_of(lane / 4 + 8 * half);
      TANDEM_UNROLL
      for (int n = 0; n < Size / 8; ++n) {
        const int column = 8 * n + lane % 4 * 2;
        if (!out || column >= size) continue;
        out[column] = to_bf16_bits(sums.at(lane, 4 * n + 2 * half));
        out[column + 1] = to_bf16_bits(sums.at(lane, 4 * n + 2 * half + 1));
      }
    }
  });
}

template <int Size>
struct TensorQueryGradient : TensorBackward {
  static constexpr int kWarps = 4;
  static_assert(kWarps * kWarpRows == kTileRows);

  struct QueryTile {
    int64_t row;
    int rows, position, path;  // of the first row; where the path begins
    int first, end;            // positions that some row sees
  };
  struct Shared {
    Tile<Size> queries, grads, keys[2], values[2];
    QueryTile tile;
    bool begins[kTileRows];  // of the rows that a block of warps goes over: whether a tile begins here
  };
  struct Private {
    int next;         // row behind the tile
    int step, steps;  // blocks of keys; -1: no tile
    Registers<int, 2> position;
    Registers<float, 2> log_sum, delta;
    Registers<float, Size / 2> sum;
  };

  TANDEM_HD explicit TensorQueryGradient(const TensorBackward& base) : TensorBackward(base) {}
  int64_t blocks() const { return pieces(a.rows, kTileRows) * a.heads; }

  // One phase for where tiles begin, then for each tile one to ask for its first block and one for each block.
  TANDEM_HD bool run(int64_t block, int phase, int warp, Shared& shared, Private& own) const {
    const int head = static_cast<int>(block % a.heads);
    const int64_t range = block / a.heads * kTileRows;
    const int rows = static_cast<int>(a.rows - range < kTileRows ? a.rows - range : kTileRows);
    if (phase == 0) {
      each_lane([&](int lane) {
        const int i = warp * kWarp + lane;
        if (i < rows) shared.begins[i] = i == 0 || a.row_run[range + i] != a.row_run[range + i - 1];
      });
      own.next = 0;
      own.step = -1;
      return true;
    }
    if (own.step < 0) {
      if (!next_tile(range, rows, head, warp, shared, own)) return false;
      own.step = 0;
    } else {
      if (own.step + 1 < own.steps) ask(shared.tile, own.step + 1, head, warp, shared);
      add(shared, warp, own);
      if (++own.step == own.steps) {
        const QueryTile& tile = shared.tile;
        write_rows<Size>(own.sum, a.head_size, [&](int i) {
          const int row = warp * kWarpRows + i;
          return row < tile.rows
                     ? a.grad_queries + (tile.row + row) * a.grad_stride + static_cast<int64_t>(head) * a.head_size
                     : nullptr;
        });
        own.step = -1;
        return true;
      }
    }
    wait_for_copies<0>();
    return true;
  }

 private:
  TANDEM_HD bool next_tile(int64_t range, int rows, int head, int warp, Shared& shared, Private& own) const {
    while (own.next < rows) {
      const int begin = own.next;
      own.next = rows;
      TANDEM_UNROLL_8
      for (int i = rows - 1; i > begin; --i) own.next = shared.begins[i] ? i : own.next;
      if (a.row_run[range + begin] < 0) continue;
      const TandemCudaTreeRun run = a.runs[a.row_run[range + begin]];
      const int position = run.path_length - run.rows + static_cast<int>(range + begin - run.row);
      const QueryTile tile = {.row = range + begin,
                              .rows = own.next - begin,
                              .position = position,
                              .path = run.path_begin,
                              .first = first_seen(a.window, position),
                              .end = position + own.next - begin};
      begin_tile(tile, head, warp, shared, own);
      return true;
    }
    return false;
  }
  TANDEM_HD void begin_tile(const QueryTile& tile, int head, int warp, Shared& shared, Private& own) const {
    if (warp == 0) shared.tile = tile;
    own.steps = (tile.end - 1) / kKeyBlock - tile.first / kKeyBlock + 1;
    copy_tile<kWarps, 1>(shared.queries, a.head_size, aligned, warp, a.queries,
                         [&](int i) { return i < tile.rows ? query_at(tile.row + i, head) : nullptr; });
    copy_tile<kWarps, 1>(shared.grads, value_size_of(a), aligned, warp, a.grad_out,
                         [&](int i) { return i < tile.rows ? grad_at(tile.row + i, head) : nullptr; });
    ask(tile, 0, head, warp, shared);
    clear(own.sum);
    each_lane([&](int lane) {
      TANDEM_UNROLL
      for (int half = 0; half < 2; ++half) {
        const int i = warp * kWarpRows + lane / 4 + 8 * half;
        const bool there = i < tile.rows;
        own.position.at(lane, half) = there ? tile.position + i : -1;
        own.log_sum.at(lane, half) = there ? a.log_sum[(tile.row + i) * a.heads + head] : 0.0f;
        own.delta.at(lane, half) = there ? delta[(tile.row + i) * a.heads + head] : 0.0f;
      }
    });
  }
  TANDEM_HD static int begin_of(const QueryTile& tile, int step) { return (tile.first / kKeyBlock + step) * kKeyBlock; }
  TANDEM_HD void ask(const QueryTile& tile, int step, int head, int warp, Shared& shared) const {
    const int begin = begin_of(tile, step), kv_head = head / (a.heads / a.kv_heads);
    const auto row_of = [&](int i) {
      return begin + i >= tile.first && begin + i < tile.end ? a.paths[tile.path + begin + i] : -1;
    };
    copy_tile<kWarps, 4>(shared.keys[step % 2], a.head_size, aligned, warp, a.keys, [&](int i) {
      const int row = row_of(i);
      return row < 0 ? nullptr : key_at(row, kv_head);
    });
    copy_tile<kWarps, 4>(shared.values[step % 2], value_size_of(a), aligned, warp, a.values, [&](int i) {
      const int row = row_of(i);
      return row < 0 ? nullptr : value_at(row, kv_head);
    });
    end_of_copies();
  }

  TANDEM_HD void add(const Shared& shared, int warp, Private& own) const {
    const int begin = begin_of(shared.tile, own.step);
    Registers<float, 32> scores, grads;
    dots(scores, shared.queries, warp, shared.keys[own.step % 2]);
    dots(grads, shared.grads, warp, shared.values[own.step % 2]);
    Registers<uint32_t, 16> weights;
    as_weights(weights, [&](int lane, int i) {
      const int half = i / 2 % 2, key = begin + i / 4 * 8 + lane % 4 * 2 + i % 2;
      const float p = probability_of(scores.at(lane, i), a.scale, own.log_sum.at(lane, half));
      return sees(own.position.at(lane, half), key)
                 ? gradient_of(p, grads.at(lane, i), own.delta.at(lane, half), a.scale)
                 : 0.0f;
    });
    gather(weights, shared.keys[own.step % 2], [&](int c, const Registers<float, 16>& gathered) {
      each_lane([&](int lane) {
        TANDEM_UNROLL
        for (int i = 0; i < 16; ++i) {
          const int position = own.position.at(lane, i / 2 % 2);
          const bool adds = position >= begin && first_seen(a.window, position) < begin + kKeyBlock;
          const float sum = own.sum.at(lane, 16 * c + i);
          own.sum.at(lane, 16 * c + i) = adds ? sum + gathered.at(lane, i) : sum;
        }
      });
    });
  }
};

}  // namespace tandem::kernels::cuda
