// A gate times what it lets through: x sigmoid(argument(x)) * up, forward and backward.
#pragma once

#include "kernels/cpu/operations.h"
#include "kernels/cpu/simd.h"
#include "kernels/cpu/transformer_ops.inl"

namespace tandem::kernels::TANDEM_ISA {

TANDEM_INLINE Float sigmoid(Float x) { return broadcast(1) / (broadcast(1) + exponential(-x)); }

struct Silu {
  static TANDEM_INLINE Float within(Float x) { return x; }
  static TANDEM_INLINE Float argument(Float x) { return x; }
  static TANDEM_INLINE Float derivative(Float /*x*/) { return broadcast(1); }
};

// Gelu by the hyperbolic tangent: (1 + tanh(u / 2)) / 2 is sigmoid(u).
struct GeluTanh {
  static constexpr float kLinear = 1.5957691216f, kCubic = 0.0713548163f;  // sqrt(8 / pi), and 0.044715 times it
  // Far beyond where the sigmoid is 0 or 1: a cube is never infinite, and infinity times zero never NaN. NaN stays.
  static TANDEM_INLINE Float within(Float x) {
    const Float bound = broadcast(64);
    return select(x > bound, bound, select(x < -bound, -bound, x));
  }
  static TANDEM_INLINE Float argument(Float x) {
    const Float bounded = within(x);
    return bounded * fma(bounded * bounded, broadcast(kCubic), broadcast(kLinear));
  }
  static TANDEM_INLINE Float derivative(Float x) {
    const Float bounded = within(x);
    return fma(bounded * bounded, broadcast(3 * kCubic), broadcast(kLinear));
  }
};

template <typename Gate>
TANDEM_INLINE Float gated(Float gate, Float up) {
  return gate / one_and_exponential(-Gate::argument(gate)) * up;  // NaN where the gate is, whatever it is divided by
}

template <typename Gate, typename T, typename Store = StoreInCaches>
TANDEM_INLINE void gate_row(const T* gate_up, int width, T* target, const Store& store_at = {}) {
  const T* up = gate_up + width;
  for_lanes(
      width, [&](int i) { store_at(target + i, gated<Gate>(load(gate_up + i), load(up + i))); },
      [&](int i, int n) { store_part(target + i, gated<Gate>(load_part(gate_up + i, n), load_part(up + i, n)), n); });
}

template <typename Gate, typename T>
void gate_rows(ThreadPool& threads, const T* gate_up, int rows, int width, T* out) {
  choose_store(out, rows, width, [&](const auto& store_at) {
    for_pieces(threads, rows, kRowsPerTask, [&](size_t begin, size_t end) {
      for (size_t row = begin; row < end; ++row) {
        fetch(gate_up + (row + 1) * 2 * width, size_t{2} * width);
        gate_row<Gate>(gate_up + row * 2 * width, width, out + row * width, store_at);
      }
      store_at.finish();
    });
  });
}

// d(gate) = grad * up * s (1 + gate (1 - s) derivative(gate)),  d(up) = grad * gate * s,  s = sigmoid(argument(gate)).
template <typename Gate>
void gate_rows_backward(ThreadPool& threads, const bf16* gate_up, const bf16* grad_out, int rows, int width,
                        bf16* grad_gate_up) {
  const auto gate_gradient = [](Float grad, Float gate, Float up) {
    const Float s = sigmoid(Gate::argument(gate));
    return grad * up * s * (broadcast(1) + Gate::within(gate) * (broadcast(1) - s) * Gate::derivative(gate));
  };
  const auto up_gradient = [](Float grad, Float gate) { return grad * gate * sigmoid(Gate::argument(gate)); };
  for_pieces(threads, rows, kRowsPerTask, [&](size_t begin, size_t end) {
    for (size_t row = begin; row < end; ++row) {
      const bf16* gate = gate_up + row * 2 * width;
      const bf16* up = gate + width;
      const bf16* grad = grad_out + row * width;
      bf16* target = grad_gate_up + row * 2 * width;
      for_lanes(
          width,
          [&](int i) {
            const Float g = load(gate + i), u = load(up + i), gradient = load(grad + i);
            store(target + i, gate_gradient(gradient, g, u));
            store(target + width + i, up_gradient(gradient, g));
          },
          [&](int i, int n) {
            const Float g = load_part(gate + i, n), u = load_part(up + i, n), gradient = load_part(grad + i, n);
            store_part(target + i, gate_gradient(gradient, g, u), n);
            store_part(target + width + i, up_gradient(gradient, g), n);
          });
    }
  });
}

template <typename T>
void swiglu(ThreadPool& threads, const T* gate_up, int rows, int width, T* out) {
  gate_rows<Silu>(threads, gate_up, rows, width, out);
}
template <typename T>
void geglu(ThreadPool& threads, const T* gate_up, int rows, int width, T* out) {
  gate_rows<GeluTanh>(threads, gate_up, rows, width, out);
}
inline void swiglu_backward(ThreadPool& threads, const bf16* gate_up, const bf16* grad_out, int rows, int width,
                            bf16* grad_gate_up) {
  gate_rows_backward<Silu>(threads, gate_up, grad_out, rows, width, grad_gate_up);
}
inline void geglu_backward(ThreadPool& threads, const bf16* gate_up, const bf16* grad_out, int rows, int width,
                           bf16* grad_gate_up) {
  gate_rows_backward<GeluTanh>(threads, gate_up, grad_out, rows, width, grad_gate_up);
}

}  // namespace tandem::kernels::TANDEM_ISA
