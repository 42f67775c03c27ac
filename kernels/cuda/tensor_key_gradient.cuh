// The gradient of keys and values on tensor cores: tiles of rows of one run within one block of 64 positions and one kv
// head; for each head of its group they go over the runs that see them, 64 queries at a time. Half of the warps add up
// the gradient of values, half that of keys.
#pragma once

#include "kernels/cuda/tensor_query_gradient.cuh"

namespace tandem::kernels::cuda {

template <int Size>
struct TensorKeyGradient : TensorBackward {
  static constexpr int kParts = kTileRows / kWarpRows;
  static constexpr int kWarps = 2 * kParts;

  struct KeyTile {
    int64_t row;
    int rows, position;  // of the first row
    int tree_begin, tree_end;
    TANDEM_HD int last() const { return position + rows - 1; }
  };
  // Queries `query` .. `query` + 63 of a run.
  struct Queries {
    int head, run, query;
    TandemCudaTreeRun of;
    TANDEM_HD int position() const { return of.path_length - of.rows + query; }
    TANDEM_HD bool has(int i) const { return query + i < of.rows; }
    TANDEM_HD int64_t row(int i) const { return of.row + query + i; }
  };
  struct Shared {
    KeyTile tile;
    Tile<Size> keys, values, queries[2], grads[2];
    float log_sum[2][kTileRows], delta[2][kTileRows];
    int32_t tiles[kTileRows];  // rows of the tile that begins at each row that a block of warps goes over, 0: none
  };
  struct Private {
    int next;  // row behind that of the tile
    int step;  // -1: no tile
    KeyTile tile;
    Queries queries;          // what is asked for next
    int run;                  // that `holds` is of
    Registers<int, 2> holds;  // whether the run's path has the key
    Registers<float, Size / 2> of_head, sum;
  };

  TANDEM_HD explicit TensorKeyGradient(const TensorBackward& base) : TensorBackward(base) {}
  int64_t blocks() const { return pieces(a.rows, kTileRows) * a.kv_heads; }

  TANDEM_HD bool run(int64_t block, int phase, int warp, Shared& shared, Private& own) const {
    const int kv_head = static_cast<int>(block % a.kv_heads);
    const int64_t range = block / a.kv_heads * kTileRows;
    if (phase == 0) {
      each_lane([&](int lane) {
        const int i = warp * kWarp + lane;
        if (i < kTileRows) shared.tiles[i] = range + i < a.rows ? tile_at(range + i) : 0;
      });
      own.next = 0;
      own.step = -1;
      return true;
    }
    if (own.step < 0) {
      if (!next_tile(range, kv_head, warp, shared, own)) return false;
      own.step = 0;
      wait_for_copies<0>();
      return true;
    }
    const Queries now = own.queries;
    const bool more = advance(shared.tile, kv_head, own.queries);
    if (more) ask(own.queries, (own.step + 1) % 2, warp, shared);
    add(now, shared, warp, own);
    if (!more || own.queries.head != now.head) end_head(own);
    ++own.step;
    if (!more) {
      write(shared.tile, kv_head, warp, own);
      own.step = -1;
    }
    wait_for_copies<0>();
    return true;
  }

 private:
  TANDEM_HD int tile_at(int64_t row) const {
    if (a.row_run[row] < 0) return 0;
    const TandemCudaTreeRun run = a.runs[a.row_run[row]];
    const int at = static_cast<int>(row - run.row), position = run.path_length - run.rows + at;
    if (at != 0 && position % kKeyBlock != 0) return 0;
    return smaller(run.rows - at, kKeyBlock - position % kKeyBlock);
  }
  TANDEM_HD bool next_tile(int64_t range, int kv_head, int warp, Shared& shared, Private& own) const {
    for (; own.next < kTileRows; ++own.next) {
      const int rows = shared.tiles[own.next];
      if (rows == 0) continue;
      const int64_t row = range + own.next++;
      const TandemCudaTreeRun run = a.runs[a.row_run[row]];
      const KeyTile tile = {row, rows, run.path_length - run.rows + static_cast<int>(row - run.row), run.tree_begin,
                            run.tree_end};
      if (warp == 0) shared.tile = tile;
      own.queries.head = kv_head * (a.heads / a.kv_heads);
      own.run = -1;
      clear(own.of_head);
      clear(own.sum);
      copy_tile<kWarps, 1>(shared.keys, a.head_size, aligned, warp, a.keys,
                           [&](int i) { return i < tile.rows ? key_at(row + i, kv_head) : nullptr; });
      copy_tile<kWarps, 1>(shared.values, value_size_of(a), aligned, warp, a.values,
                           [&](int i) { return i < tile.rows ? value_at(row + i, kv_head) : nullptr; });
      first_queries(tile, tile.tree_begin, own.queries);  // there are some: those of the keys' own rows
      ask(own.queries, 0, warp, shared);
      return true;
    }
    return false;
  }
  // The first run from `from` on whose path has the first key, and its first block of queries (AttentionKeyGradient).
  TANDEM_HD bool first_queries(const KeyTile& tile, int from, Queries& queries) const {
    for (int run = from; run < tile.tree_end; ++run) {
      queries.of = a.runs[run];
      if (queries.of.path_length <= tile.position || a.paths[queries.of.path_begin + tile.position] != tile.row)
        continue;
      const int hidden = tile.position / kKeyBlock * kKeyBlock - (queries.of.path_length - queries.of.rows);
      queries.run = run;
      queries.query = hidden > 0 ? hidden / 2 * 2 : 0;
      if (reaches(tile, queries)) return true;
    }
    return false;
  }
  TANDEM_HD bool reaches(const KeyTile& tile, const Queries& queries) const {
    return queries.has(0) && first_seen(a.window, queries.position()) <= tile.last();
  }
  TANDEM_HD bool advance(const KeyTile& tile, int kv_head, Queries& queries) const {
    queries.query += kTileRows;
    if (reaches(tile, queries) || first_queries(tile, queries.run + 1, queries)) return true;
    return ++queries.head < (kv_head + 1) * (a.heads / a.kv_heads) && first_queries(tile, tile.tree_begin, queries);
  }
  TANDEM_HD void ask(const Queries& queries, int buffer, int warp, Shared& shared) const {
    copy_tile<kWarps, 1>(shared.queries[buffer], a.head_size, aligned, warp, a.queries,
                         [&](int i) { return queries.has(i) ? query_at(queries.row(i), queries.head) : nullptr; });
    copy_tile<kWarps, 1>(shared.grads[buffer], value_size_of(a), aligned, warp, a.grad_out,
                         [&](int i) { return queries.has(i) ? grad_at(queries.row(i), queries.head) : nullptr; });
    end_of_copies();
    each_lane([&](int lane) {
      const int i = warp * kWarp + lane;
      if (i >= kTileRows) return;
      const int64_t at = queries.row(i) * a.heads + queries.head;
      shared.log_sum[buffer][i] = queries.has(i) ? a.log_sum[at] : 0.0f;
      shared.delta[buffer][i] = queries.has(i) ? delta[at] : 0.0f;
    });
  }

  TANDEM_HD static int key_of(int warp, int lane, int half) { return warp % kParts * kWarpRows + lane / 4 + 8 * half; }
  // Which keys of the warp are on the run's path.
  TANDEM_HD void look_up(const KeyTile& tile, const Queries& now, int warp, Private& own) const {
    own.run = now.run;
    each_lane([&](int lane) {
      TANDEM_UNROLL
      for (int half = 0; half < 2; ++half) {
        const int key = key_of(warp, lane, half), position = tile.position + key;
        own.holds.at(lane, half) =
            key < tile.rows && now.of.path_length > position && a.paths[now.of.path_begin + position] == tile.row + key;
      }
    });
  }
  TANDEM_HD void add(const Queries& now, const Shared& shared, int warp, Private& own) const {
    const int buffer = own.step % 2;
    const bool of_keys = warp >= kParts;
    const int first_position = shared.tile.position;
    if (own.run != now.run) look_up(shared.tile, now, warp, own);
    Registers<float, 32> scores, grads;
    dots(scores, shared.keys, warp % kParts, shared.queries[buffer]);
    if (of_keys) dots(grads, shared.values, warp % kParts, shared.grads[buffer]);
    Registers<uint32_t, 16> weights;
    as_weights(weights, [&](int lane, int i) {
      const int half = i / 2 % 2, query = i / 4 * 8 + lane % 4 * 2 + i % 2;
      const int position = first_position + key_of(warp, lane, half);
      if (!own.holds.at(lane, half) || !now.has(query) || !sees(now.position() + query, position)) return 0.0f;
      const float p = probability_of(scores.at(lane, i), a.scale, shared.log_sum[buffer][query]);
      return of_keys ? gradient_of(p, grads.at(lane, i), shared.delta[buffer][query], a.scale) : p;
    });
    gather(weights, of_keys ? shared.queries[buffer] : shared.grads[buffer],
           [&](int c, const Registers<float, 16>& gathered) {
             each_lane([&](int lane) {
               TANDEM_UNROLL
               for (int i = 0; i < 16; ++i) {
                 const int position = first_position + key_of(warp, lane, i / 2 % 2);
                 const bool adds = own.holds.at(lane, i / 2 % 2) && first_seen(a.window, now.position()) <= position;
                 const float sum = own.of_head.at(lane, 16 * c + i);
                 own.of_head.at(lane, 16 * c + i) = adds ? sum + gathered.at(lane, i) : sum;
               }
             });
           });
  }
  TANDEM_HD static void end_head(Private& own) {
    each_lane([&](int lane) {
      TANDEM_UNROLL
      for (int i = 0; i < Size / 2; ++i) own.sum.at(lane, i) = own.sum.at(lane, i) + own.of_head.at(lane, i);
    });
    clear(own.of_head);
  }
  TANDEM_HD void write(const KeyTile& tile, int kv_head, int warp, const Private& own) const {
    const bool of_keys = warp >= kParts;
    const int size = of_keys ? a.head_size : value_size_of(a);
    uint16_t* grads = (of_keys ? a.grad_keys : a.grad_values) + static_cast<int64_t>(kv_head) * size;
    write_rows<Size>(own.sum, size, [&](int i) {
      const int key = warp % kParts * kWarpRows + i;
      return key < tile.rows ? grads + (tile.row + key) * a.grad_stride : nullptr;
    });
  }
};

}  // namespace tandem::kernels::cuda
