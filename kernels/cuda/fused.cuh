// Norms and gates whose rows become E4M3: the bits of the parts one after the other. Elements are computed twice, for
// the largest of their block and for their code, so no row is kept anywhere.
#pragma once

#include "kernels/cuda/gates.cuh"
#include "kernels/cuda/norms.cuh"
#include "kernels/cuda/quantize.cuh"

namespace tandem::kernels::cuda {

// Block `block` of a row whose elements make(i) gives as bf16: stored in `out`, and as codes, where those are given.
template <typename Arguments, typename Make>
TANDEM_HD void make_block(const Arguments& a, int64_t row, int64_t block, const Make& make) {
  const int64_t first = block * a.block;
  const int count = block_length(block, a.block, a.width);
  const auto value = [&](int i) { return make(first + i); };
  if (a.codes) {
    a.scales[row * pieces(a.width, a.block) + block] = quantize_run(value, count, a.codes + row * a.width + first);
  }
  for (int i = 0; a.out && i < count; ++i) a.out[row * a.width + first + i] = value(i);
}
template <typename Arguments>
int check_fused(const Arguments& a) {
  if ((!a.out && !a.codes) || (a.codes != nullptr) != (a.scales != nullptr)) return kTandemCudaNull;
  if (a.rows < 0 || a.width < 0) return kTandemCudaSize;
  return a.block == kFp8Block || a.block == kMxfp8Block ? kTandemCudaOk : kTandemCudaShape;
}

// A lane takes every sixteenth element for the sum, then every sixteenth block.
struct NormQuantizeKernel : RowLanes {
  using Private = Nothing;
  TandemCudaNormQuantize n;

  TANDEM_HD explicit NormQuantizeKernel(const TandemCudaNormQuantize& arguments) : n(arguments) {}
  TANDEM_HD bool run(int64_t block, int phase, int thread, Shared& shared, Private&) const {
    const int64_t row = row_of(block, thread);
    uint16_t* x = n.x + row * n.width;
    if (phase == 0) {
      if (row >= n.rows) return true;
      for (int i = lane_of(thread); n.residual && i < n.width; i += kLanes) {
        x[i] = to_bf16_bits(from_bf16(x[i]) + from_bf16(n.residual[row * n.width + i]));
      }
      const auto value = [&](int i) { return from_bf16(x[i]); };
      put(thread, n.width, shared, value, value);
      return true;
    }
    if (row >= n.rows) return false;
    const float inverse = inverse_rms(total(thread, shared), n.width, n.epsilon);
    for (int64_t part = lane_of(thread); part < pieces(n.width, n.block); part += kLanes) {
      make_block(n, row, part, [&](int64_t i) {
        const float normed = from_bf16(to_bf16_bits(from_bf16(x[i]) * inverse));
        return to_bf16_bits(normed * from_bf16(n.weight[i]));
      });
    }
    return false;
  }
};
template <typename Execution>
int operate(Execution& execution, const TandemCudaNormQuantize& n) {
  if (!n.x || !n.weight) return kTandemCudaNull;
  if (const int code = check_fused(n)) return code;
  return start(execution, NormQuantizeKernel(n), RowLanes::blocks(n.rows));
}

template <typename Gate>
struct GateQuantizeBlock {
  TandemCudaGateQuantize g;
  TANDEM_HD void operator()(int64_t i) const {
    const int64_t across = pieces(g.width, g.block), row = i / across;
    const uint16_t* gate = g.gate_up + row * 2 * g.width;
    make_block(g, row, i % across, [&](int64_t at) {
      return to_bf16_bits(gated<Gate>(from_bf16(gate[at]), from_bf16(gate[g.width + at])));
    });
  }
};
template <typename Execution>
int operate(Execution& execution, const TandemCudaGateQuantize& g) {
  if (!g.gate_up) return kTandemCudaNull;
  if (const int code = check_fused(g)) return code;
  const int64_t blocks = g.rows * pieces(g.width, g.block);
  return g.gelu_tanh ? each_element(execution, blocks, GateQuantizeBlock<GeluTanh>{g})
                     : each_element(execution, blocks, GateQuantizeBlock<Silu>{g});
}

}  // namespace tandem::kernels::cuda
