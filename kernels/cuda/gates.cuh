// A gate times what it lets through, x sigmoid(argument(x)) * up, forward and backward: kernels/cpu/gates.inl.
#pragma once

#include "kernels/cuda/execution.cuh"

namespace tandem::kernels::cuda {

TANDEM_HD float sigmoid(float x) { return 1.0f / (1.0f + exponential(-x)); }

struct Silu {
  TANDEM_HD static float within(float x) { return x; }
  TANDEM_HD static float argument(float x) { return x; }
  TANDEM_HD static float derivative(float /*x*/) { return 1.0f; }
};

// Gelu by the hyperbolic tangent: (1 + tanh(u / 2)) / 2 is sigmoid(u).
struct GeluTanh {
  static constexpr float kLinear = 1.5957691216f, kCubic = 0.0713548163f;  // sqrt(8 / pi), and 0.044715 times it
  // Far beyond where the sigmoid is 0 or 1: a cube is never infinite, and infinity times zero never NaN. NaN stays.
  TANDEM_HD static float within(float x) { return x > 64.0f ? 64.0f : x < -64.0f ? -64.0f : x; }
  TANDEM_HD static float argument(float x) {
    const float bounded = within(x);
    return bounded * fmaf(bounded * bounded, kCubic, kLinear);
  }
  TANDEM_HD static float derivative(float x) {
    const float bounded = within(x);
    return fmaf(bounded * bounded, 3 * kCubic, kLinear);
  }
};

template <typename Gate>
TANDEM_HD float gated(float gate, float up) {
  return gate / (1.0f + exponential(-Gate::argument(gate))) * up;
}

template <typename Gate, typename Arguments>
struct GateElement {
  Arguments s;
  TANDEM_HD void operator()(int64_t i) const {
    const int64_t at = i / s.width * 2 * s.width + i % s.width;
    using T = std::remove_reference_t<decltype(*s.out)>;
    s.out[i] = stored<T>(gated<Gate>(value_of(s.gate_up[at]), value_of(s.gate_up[at + s.width])));
  }
};
template <typename Gate, typename Execution, typename Arguments>
int gate(Execution& execution, const Arguments& s) {
  if (!s.gate_up || !s.out) return kTandemCudaNull;
  if (s.rows < 0 || s.width < 0) return kTandemCudaSize;
  return each_element(execution, static_cast<int64_t>(s.rows) * s.width, GateElement<Gate, Arguments>{s});
}
template <typename Execution, OneOf<TandemCudaSwiglu, TandemCudaSwigluFloat> Arguments>
int operate(Execution& execution, const Arguments& s) {
  return gate<Silu>(execution, s);
}
template <typename Execution, OneOf<TandemCudaGeglu, TandemCudaGegluFloat> Arguments>
int operate(Execution& execution, const Arguments& s) {
  return gate<GeluTanh>(execution, s);
}

// d(gate) = grad * up * s (1 + gate (1 - s) derivative(gate)),  d(up) = grad * gate * s,  s = sigmoid(argument(gate)).
template <typename Gate, typename Arguments>
struct GateBackwardElement {
  Arguments s;
  TANDEM_HD void operator()(int64_t i) const {
    const int64_t at = i / s.width * 2 * s.width + i % s.width;
    const float gate = from_bf16(s.gate_up[at]), up = from_bf16(s.gate_up[at + s.width]);
    const float grad = from_bf16(s.grad_out[i]);
    const float open = sigmoid(Gate::argument(gate));
    const float bend = 1.0f + Gate::within(gate) * (1.0f - open) * Gate::derivative(gate);
    s.grad_gate_up[at] = to_bf16_bits(grad * up * open * bend);
    s.grad_gate_up[at + s.width] = to_bf16_bits(grad * gate * open);
  }
};
template <typename Gate, typename Execution, typename Arguments>
int gate_backward(Execution& execution, const Arguments& s) {
  if (!s.gate_up || !s.grad_out || !s.grad_gate_up) return kTandemCudaNull;
  if (s.rows < 0 || s.width < 0) return kTandemCudaSize;
  return each_element(execution, static_cast<int64_t>(s.rows) * s.width, GateBackwardElement<Gate, Arguments>{s});
}
template <typename Execution>
int operate(Execution& execution, const TandemCudaSwigluBackward& s) {
  return gate_backward<Silu>(execution, s);
}
template <typename Execution>
int operate(Execution& execution, const TandemCudaGegluBackward& s) {
  return gate_backward<GeluTanh>(execution, s);
}

}  // namespace tandem::kernels::cuda
