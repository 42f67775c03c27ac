// Rows: sums over a row in 16 lanes, here 16 threads, that end in the fixed tree; sums over rows in pieces; embedding,
// RoPE, addition. Formulas and order of additions are those of kernels/transformer_ops.h.
#pragma once

#include "kernels/cuda/execution.cuh"

namespace tandem::kernels::cuda {

// A block takes eight rows, each with 16 threads: a lane's part of a sum first, then all threads form the same tree.
struct RowLanes {
  static constexpr int kThreads = 128;
  static constexpr int kRows = kThreads / kLanes;
  struct Shared {
    float lanes[kRows][kLanes];
  };
  TANDEM_HD static int lane_of(int thread) { return thread % kLanes; }
  TANDEM_HD static int64_t row_of(int64_t block, int thread) { return block * kRows + thread / kLanes; }
  TANDEM_HD static int64_t blocks(int64_t rows) { return pieces(rows, kRows); }

  // sum over i of first(i) * second(i), fused, of this thread's lane.
  template <typename First, typename Second>
  TANDEM_HD static void put(int thread, int width, Shared& shared, const First& first, const Second& second) {
    float sum = 0;
    for (int i = lane_of(thread); i < width; i += kLanes) sum = fmaf(first(i), second(i), sum);
    shared.lanes[thread / kLanes][lane_of(thread)] = sum;
  }
  TANDEM_HD static float total(int thread, const Shared& shared) {
    float lanes[kLanes];
    for (int lane = 0; lane < kLanes; ++lane) lanes[lane] = shared.lanes[thread / kLanes][lane];
    return sum_of_lanes(lanes);
  }
};

// Sums over rows: pieces of 64 rows, each from 0 by sum = add(sum, row, column), then the pieces in order onto what is
// there.
constexpr int kRowsOfPiece = 64;
inline size_t sum_over_rows_workspace(int rows, int width) {
  return static_cast<size_t>(pieces(rows, kRowsOfPiece)) * width * sizeof(float);
}

template <typename Add>
struct PieceOfRows {
  Add add;
  float* partial;  // [pieces][width]
  int rows, width;
  TANDEM_HD void operator()(int64_t i) const {
    const int64_t first = i / width * kRowsOfPiece;
    const int64_t end = first + kRowsOfPiece < rows ? first + kRowsOfPiece : rows;
    float sum = 0;
    for (int64_t row = first; row < end; ++row) sum = add(sum, row, static_cast<int>(i % width));
    partial[i] = sum;
  }
};
struct JoinedPieces {
  const float* partial;
  float* out;
  int rows, width;
  TANDEM_HD void operator()(int64_t column) const {
    float sum = out[column];
    for (int64_t piece = 0; piece < pieces(rows, kRowsOfPiece); ++piece) sum = sum + partial[piece * width + column];
    out[column] = sum;
  }
};
template <typename Execution, typename Add>
int sum_over_rows(Execution& execution, int rows, int width, const Add& add, float* partial, float* out) {
  return in_order(
      [&] {
        return each_element(execution, pieces(rows, kRowsOfPiece) * width, PieceOfRows<Add>{add, partial, rows, width});
      },
      [&] {
        return each_element(execution, width, JoinedPieces{partial, out, rows, width});
      });
}

struct RowOfBf16 {
  const uint16_t* x;
  int64_t stride;
  TANDEM_HD float operator()(float sum, int64_t row, int column) const {
    return sum + from_bf16(x[row * stride + column]);
  }
};
inline size_t sum_rows_workspace(int rows, int width) { return sum_over_rows_workspace(rows, width); }
template <typename Execution>
int operate(Execution& execution, const TandemCudaSumRows& s) {
  if (!s.x || !s.out || !s.workspace) return kTandemCudaNull;
  if (s.rows < 0 || s.width < 0) return kTandemCudaSize;
  if (s.stride < s.width) return kTandemCudaStride;
  if (s.workspace_bytes < sum_rows_workspace(s.rows, s.width)) return kTandemCudaWorkspace;
  return sum_over_rows(execution, s.rows, s.width, RowOfBf16{s.x, s.stride}, static_cast<float*>(s.workspace), s.out);
}

// One element of a row of the table; NaN for an id outside it.
template <typename Arguments>
struct EmbedElement {
  Arguments e;
  TANDEM_HD void operator()(int64_t i) const {
    const int32_t id = e.ids[i / e.width];
    const bool there = id >= 0 && id < e.vocabulary;
    using T = std::remove_reference_t<decltype(*e.out)>;
    e.out[i] = there ? e.table[static_cast<int64_t>(id) * e.width + i % e.width] : stored<T>(not_a_number());
  }
};
template <typename Execution, OneOf<TandemCudaEmbed, TandemCudaEmbedFloat> Arguments>
int operate(Execution& execution, const Arguments& e) {
  if (!e.table || !e.ids || !e.out) return kTandemCudaNull;
  if (e.rows < 0 || e.width < 0 || e.vocabulary < 0) return kTandemCudaSize;
  return each_element(execution, static_cast<int64_t>(e.rows) * e.width, EmbedElement<Arguments>{e});
}

// One column for all rows in order: two rows may be the same token.
struct EmbedBackwardColumn {
  TandemCudaEmbedBackward e;
  TANDEM_HD void operator()(int64_t column) const {
    for (int64_t row = 0; row < e.rows; ++row) {
      const int32_t id = e.ids[row];
      if (id < 0 || id >= e.vocabulary) continue;
      float& target = e.grad_table[static_cast<int64_t>(id) * e.width + column];
      target = target + from_bf16(e.grad_out[row * e.width + column]);
    }
  }
};
template <typename Execution>
int operate(Execution& execution, const TandemCudaEmbedBackward& e) {
  if (!e.grad_out || !e.ids || !e.grad_table) return kTandemCudaNull;
  if (e.rows < 0 || e.width < 0 || e.vocabulary < 0) return kTandemCudaSize;
  return each_element(execution, e.width, EmbedBackwardColumn{e});
}

// One pair of one head; NaN at a position outside the table.
template <typename Arguments>
struct RopePair {
  Arguments r;  // with `rope_dim` given
  TANDEM_HD void operator()(int64_t index) const {
    using T = std::remove_reference_t<decltype(*r.x)>;
    const int half = r.rope_dim / 2;
    const int i = static_cast<int>(index % half);
    const int head = static_cast<int>(index / half % r.heads);
    const int64_t row = index / half / r.heads;
    T* first = r.x + row * r.stride + static_cast<int64_t>(head) * r.head_size + (r.interleaved ? 2 * i : i);
    T* second = first + (r.interleaved ? 1 : half);
    const int32_t position = r.positions[row];
    float cosine = not_a_number(), sine = cosine;
    if (position >= 0 && position < r.table_positions) {
      const float* turn = r.table + static_cast<int64_t>(position) * r.rope_dim + i * 2;
      cosine = turn[0];
      sine = r.inverse ? -turn[1] : turn[1];
    }
    const float a = value_of(*first), b = value_of(*second);
    *first = stored<T>(a * cosine - b * sine);
    *second = stored<T>(b * cosine + a * sine);
  }
};
template <typename Execution, OneOf<TandemCudaRope, TandemCudaRopeFloat> Arguments>
int operate(Execution& execution, const Arguments& arguments) {
  Arguments r = arguments;
  if (r.rope_dim == 0) r.rope_dim = r.head_size;
  if (!r.x || !r.positions || !r.table) return kTandemCudaNull;
  if (r.rows < 0 || r.heads < 0) return kTandemCudaSize;
  if (r.head_size <= 0 || r.rope_dim <= 0 || r.rope_dim % 2 != 0 || r.rope_dim > r.head_size) return kTandemCudaShape;
  if (r.stride < static_cast<int64_t>(r.heads) * r.head_size) return kTandemCudaStride;
  return each_element(execution, static_cast<int64_t>(r.rows) * r.heads * (r.rope_dim / 2), RopePair<Arguments>{r});
}

template <typename Arguments>
struct AddElement {
  Arguments a;
  TANDEM_HD void operator()(int64_t i) const {
    a.x[i] = stored<std::remove_reference_t<decltype(*a.x)>>(value_of(a.x[i]) + value_of(a.y[i]));
  }
};
template <typename Execution, OneOf<TandemCudaAdd, TandemCudaAddFloat> Arguments>
int operate(Execution& execution, const Arguments& a) {
  if (!a.x || !a.y) return kTandemCudaNull;
  if (a.count < 0) return kTandemCudaSize;
  return each_element(execution, a.count, AddElement<Arguments>{a});
}

template <typename Arguments>
struct SumOfParts {
  Arguments s;
  TANDEM_HD void operator()(int64_t i) const {
    float sum = value_of(s.parts[i]);
    for (int part = 1; part < s.count_of_parts; ++part) sum = sum + value_of(s.parts[part * s.count + i]);
    s.out[i] = stored<std::remove_reference_t<decltype(*s.out)>>(sum);
  }
};
template <typename Execution, OneOf<TandemCudaSumParts, TandemCudaSumPartsFloat> Arguments>
int operate(Execution& execution, const Arguments& s) {
  if (!s.parts || !s.out) return kTandemCudaNull;
  if (s.count < 0 || s.count_of_parts < 1) return kTandemCudaSize;
  return each_element(execution, s.count, SumOfParts<Arguments>{s});
}

template <typename Arguments>
struct PlacedElement {
  Arguments p;
  TANDEM_HD void operator()(int64_t i) const {
    using T = std::remove_reference_t<decltype(*p.out)>;
    const int64_t column = i % p.width, group = i / p.width % p.groups, row = i / p.width / p.groups;
    p.out[row * p.out_stride + group * p.out_group + column] =
        column < p.columns ? p.x[row * p.stride + group * p.group + column] : T{};
  }
};
template <typename Execution, OneOf<TandemCudaPlaceColumns, TandemCudaPlaceColumnsFloat> Arguments>
int operate(Execution& execution, const Arguments& p) {
  if (!p.x || !p.out) return kTandemCudaNull;
  if (p.rows < 0 || p.groups < 1 || p.columns < 0 || p.width < 1 || p.columns > p.width) return kTandemCudaSize;
  if (p.groups > 1 && (p.out_group < p.width || p.group < p.columns)) return kTandemCudaStride;
  return each_element(execution, int64_t{p.rows} * p.groups * p.width, PlacedElement<Arguments>{p});
}

struct TakenToken {
  TandemCudaTakeTokens t;
  TANDEM_HD void operator()(int64_t i) const { t.to[t.rows[i]] = t.from[t.places[i]]; }
};
struct PutElement {
  TandemCudaPutRows p;
  TANDEM_HD void operator()(int64_t i) const {
    p.out[int64_t{p.rows[i / p.width]} * p.width + i % p.width] = to_bf16_bits(p.x[i]);
  }
};
template <typename Execution>
int operate(Execution& execution, const TandemCudaPutRows& p) {
  if (p.count < 0 || p.width < 1) return kTandemCudaSize;
  if (p.count > 0 && (!p.x || !p.rows || !p.out)) return kTandemCudaNull;
  return each_element(execution, int64_t{p.count} * p.width, PutElement{p});
}

template <typename Execution>
int operate(Execution& execution, const TandemCudaTakeTokens& t) {
  if (t.count < 0) return kTandemCudaSize;
  if (t.count > 0 && (!t.from || !t.places || !t.to || !t.rows)) return kTandemCudaNull;
  return each_element(execution, t.count, TakenToken{t});
}

}  // namespace tandem::kernels::cuda
