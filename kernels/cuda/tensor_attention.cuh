// Attention forward on tensor cores: what a stream with tensor kernels makes of bf16.
//
// The definition is that of attention.cuh but for its sums of products: a score, and what a block of 64 keys adds to a
// column, is a tensor chain from 0 (tensor_chain), of a block over the places 0 .. 63 of its keys, where the
// probability of a key that is not seen is 0. Thus bits depend neither on the tile that a row lies in nor on which of
// the two kernels takes it. Heads whose keys or values are no multiple of 16, or wider than 128, keep the exact kernel.
//
// A tile is rows of one sequence at consecutive positions, and some heads of one kv head: pairs of both are the rows
// of the products. Tiles of more than 16 pairs are those of tensor_prefill.cuh, others of tensor_decode.cuh.
// Only what some row of a tile sees of pages is read; where that is not finite, other rows of the tile may be NaN too.
#pragma once

#include "kernels/cuda/attention.cuh"
#include "kernels/cuda/tensor_tiles.cuh"

namespace tandem::kernels::cuda {

// How heads and rows are dealt out: `passes` times up to `heads` heads of a group, and tiles of up to `rows` rows. A
// tile begins at multiples of that, and wherever a row does not go on with the sequence of the row before.
struct AttentionTiling {
  int group, heads, passes, rows;
  // Rows of a tile of at most 16 pairs.
  TANDEM_HD int few() const { return kWarpRows / heads; }
};
inline AttentionTiling attention_tiling(int heads, int kv_heads, int pairs) {
  const int group = heads / kv_heads, passes = (group + kWarpRows - 1) / kWarpRows;
  const int of_pass = (group + passes - 1) / passes;
  return {.group = group, .heads = of_pass, .passes = passes, .rows = pairs / of_pass};
}

// Rows of one tile, and heads [head, head_end) of all.
struct AttentionTile {
  int64_t row;
  int rows, kv_head, head, head_end, heads;
  int position;    // of the first row
  int first, end;  // positions that some row sees: all between are seen

  // The row of a pair within the tile, which may lie behind its end.
  TANDEM_HD int row_of(int pair) const { return pair / heads; }
  TANDEM_HD int head_of(int pair) const { return head + pair % heads; }
  TANDEM_HD bool has(int pair) const { return row_of(pair) < rows && head_of(pair) < head_end; }
};

// What a warp knows of its 16 pairs, g and g + 8 in a lane.
template <int Size>
struct AttentionPairs {
  Registers<uint32_t, Size / 4> queries;
  Registers<int, 2> first, end;  // positions that each sees
  Registers<float, 2> maximum;
};

// What blocks of 64 keys do to 16 pairs.
template <int Size>
struct TensorAttention {
  TandemCudaAttention a;
  AttentionTiling tiling;
  bool aligned;  // everything by 16 bytes

  TANDEM_HD bool goes_on(int64_t row) const {
    const int32_t *first = a.pages.first + row, *position = a.pages.positions + row;
    return first[0] == first[-1] && position[0] == position[-1] + 1;
  }
  TANDEM_HD AttentionTile tile_of(int64_t row, int rows, int kv_head, int pass) const {
    const int head = kv_head * tiling.group + pass * tiling.heads, position = a.pages.positions[row];
    return {.row = row,
            .rows = rows,
            .kv_head = kv_head,
            .head = head,
            .head_end = smaller(head + tiling.heads, (kv_head + 1) * tiling.group),
            .heads = tiling.heads,
            .position = position,
            .first = first_seen(a.window, position),
            .end = position + rows};
  }
  TANDEM_HD static bool sees(int first, int end, int begin) { return first < begin + kKeyBlock && begin < end; }

  TANDEM_HD void begin(const AttentionTile& tile, int from, AttentionPairs<Size>& pairs) const {
    each_lane([&](int lane) {
      TANDEM_UNROLL
      for (int half = 0; half < 2; ++half) {
        const int pair = from + lane / 4 + 8 * half;
        const int position = tile.has(pair) ? a.pages.positions[tile.row + tile.row_of(pair)] : -1;
        pairs.first.at(lane, half) = first_seen(a.window, position);
        pairs.end.at(lane, half) = position + 1;
        pairs.maximum.at(lane, half) = -infinity();
      }
    });
    load_rows<Size>(pairs.queries, a.head_size, aligned, [&](int lane, int half) {
      const int pair = from + lane / 4 + 8 * half;
      const int64_t row = tile.row + tile.row_of(pair);
      return tile.has(pair) ? a.queries + row * a.query_stride + static_cast<int64_t>(tile.head_of(pair)) * a.head_size
                            : nullptr;
    });
  }

  TANDEM_HD int32_t page_of(const AttentionTile& tile, int begin) const {
    return begin < tile.end ? a.pages.table[a.pages.first[tile.row] + begin / kKeyBlock] : 0;
  }
  // Asks for the keys, or the values, of the block that begins at position `begin`.
  template <bool Values, int Workers>
  TANDEM_HD void copy(const AttentionTile& tile, int32_t page, int begin, int worker, Tile<Size>& to) const {
    const int size = Values ? value_size_of(a) : a.head_size;
    const uint16_t* all = Values ? a.pages.values : a.pages.keys;
    const uint16_t* block = all + (static_cast<int64_t>(page) * a.kv_heads + tile.kv_head) * kKeyBlock * size;
    const auto seen = static_cast<unsigned>(tile.end - tile.first);
    copy_tile<Workers, 1>(to, size, aligned, worker, [&](int i) {
      return TileRow{block + i * size, static_cast<unsigned>(begin + i - tile.first) < seen};
    });
  }

  // The scores of a block, -infinity where a key is not seen, and the largest of each pair. Every pair that is there
  // sees the whole of a block that is `Whole`.
  template <bool Whole>
  TANDEM_HD void score(const AttentionPairs<Size>& pairs, const Tile<Size>& keys, int begin,
                       Registers<float, 32>& scores, Registers<float, 2>& largest) const {
    dots<Size>(scores, pairs.queries, keys);
    each_lane([&](int lane) {
      largest.at(lane, 0) = largest.at(lane, 1) = -infinity();
      TANDEM_UNROLL
      for (int i = 0; i < 32; ++i) {
        const int half = i / 2 % 2, position = begin + i / 4 * 8 + lane % 4 * 2 + i % 2;
        const bool seen = Whole || (position >= pairs.first.at(lane, half) && position < pairs.end.at(lane, half));
        scores.at(lane, i) = seen ? scores.at(lane, i) * a.scale : -infinity();
        largest.at(lane, half) = larger_of_lane(largest.at(lane, half), scores.at(lane, i));
      }
    });
    const auto join = [](float x, float y) { return larger_of_lane(x, y); };
    join_quads(largest, 0, join);
    join_quads(largest, 1, join);
  }

  // Probabilities in place of scores, less the maximum of their pair, which is 0 where a pair sees nothing of the
  // block; and their sums by pair, in the order of sum_of_block: 16 lanes and the first level of their tree lie within
  // a lane of the warp, the next two levels are those of join_quads.
  TANDEM_HD static void weigh(Registers<float, 32>& scores, const Registers<float, 2>& maximum,
                              Registers<float, 2>& sums) {
    Registers<float, 4> parts;
    each_lane([&](int lane) {
      TANDEM_UNROLL
      for (int i = 0; i < 32; ++i)
        scores.at(lane, i) = exponential_of_lane<true>(scores.at(lane, i) - maximum.at(lane, i / 2 % 2));
      const auto every_sixteenth = [&](int i) {
        return scores.at(lane, i) + scores.at(lane, i + 8) + scores.at(lane, i + 16) + scores.at(lane, i + 24);
      };
      TANDEM_UNROLL
      for (int i = 0; i < 4; ++i) parts.at(lane, i) = every_sixteenth(i) + every_sixteenth(i + 4);
    });
    TANDEM_UNROLL
    for (int i = 0; i < 4; ++i) join_quads(parts, i, [](float x, float y) { return x + y; });
    each_lane([&](int lane) {
      sums.at(lane, 0) = parts.at(lane, 0) + parts.at(lane, 1);
      sums.at(lane, 1) = parts.at(lane, 2) + parts.at(lane, 3);
    });
  }
};

}  // namespace tandem::kernels::cuda
