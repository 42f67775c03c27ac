// Norms and gates whose rows are quantised while they are in the cache.
#pragma once

#include <vector>

#include "kernels/cpu/gates.inl"
#include "kernels/cpu/operations.h"
#include "kernels/cpu/quantize.inl"
#include "kernels/cpu/transformer_ops.inl"

namespace tandem::kernels::TANDEM_ISA {

TANDEM_INLINE void add_row(const bf16* y, int width, bf16* x) {
  for_lanes(
      width, [&](int i) { store(x + i, load(x + i) + load(y + i)); },
      [&](int i, int n) { store_part(x + i, load_part(x + i, n) + load_part(y + i, n), n); });
}

// Arguments: NormQuantize or GateQuantize. make(row, target) writes a row, which then becomes codes where they are
// asked for.
template <typename Arguments, typename Make>
void make_and_quantize(ThreadPool& threads, const Arguments& a, const Make& make) {
  const size_t across = scale_blocks(a.width, a.block);
  for_pieces(threads, a.rows, kRowsPerTask, [&](size_t begin, size_t end) {
    std::vector<bf16> apart(a.out ? 0 : a.width);
    for (size_t row = begin; row < end; ++row) {
      bf16* target = a.out ? a.out + row * a.width : apart.data();
      make(row, target);
      if (!a.codes) continue;
      e4m3* codes = a.codes + row * a.width;
      e8m0* scales = a.scales + row * across;
      if (a.block == kScaleBlock)
        quantize_row<kScaleBlock>(target, a.width, codes, scales);
      else
        quantize_row<kMicroscaleBlock>(target, a.width, codes, scales);
    }
  });
}

inline void norm_quantize(ThreadPool& threads, const NormQuantize& a) {
  make_and_quantize(threads, a, [&](size_t row, bf16* target) {
    bf16* x = a.x + row * a.width;
    if (a.residual) add_row(a.residual + row * a.width, a.width, x);
    norm_row(x, a.weight, a.epsilon, a.width, target);
  });
}

inline void gate_quantize(ThreadPool& threads, const GateQuantize& a) {
  make_and_quantize(threads, a, [&](size_t row, bf16* target) {
    const bf16* gate_up = a.gate_up + row * 2 * a.width;
    fetch(gate_up + size_t{2} * a.width, size_t{2} * a.width);
    if (a.activation == GateActivation::kSilu)
      gate_row<Silu>(gate_up, a.width, target);
    else
      gate_row<GeluTanh>(gate_up, a.width, target);
  });
}

}  // namespace tandem::kernels::TANDEM_ISA
