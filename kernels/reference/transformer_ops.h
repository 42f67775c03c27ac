// The row-wise operations of transformer_ops.h, forward and backward, in double and nowhere rounded. Rows are dense;
// their number is what the sizes say. Pure functions; any thread.
#pragma once

#include <cmath>
#include <cstddef>
#include <span>
#include <vector>

#include "kernels/formats/bf16.h"

namespace tandem::kernels::reference {

// 1 / sqrt(mean(x^2) + epsilon) of one row.
inline double inverse_rms(std::span<const bf16> x, double epsilon) {
  double squares = 0;
  for (const bf16 value : x) squares += double{to_float(value)} * to_float(value);
  return 1 / std::sqrt(squares / static_cast<double>(x.size()) + epsilon);
}

// x * inverse_rms(x) * weight.
inline std::vector<double> rms_norm(std::span<const bf16> x, std::span<const bf16> weight, double epsilon) {
  const size_t width = weight.size();
  std::vector<double> out(x.size());
  for (size_t row = 0; row < x.size(); row += width) {
    const double inverse = inverse_rms(x.subspan(row, width), epsilon);
    for (size_t i = 0; i < width; ++i) out[row + i] = to_float(x[row + i]) * inverse * to_float(weight[i]);
  }
  return out;
}

struct RmsNormGradients {
  std::vector<double> x, weight;
};
// With r = inverse_rms(x): dx = r (w g - x r^2 mean(w g x)), dw = sum over rows of g x r.
inline RmsNormGradients rms_norm_backward(std::span<const bf16> x, std::span<const bf16> weight,
                                          std::span<const bf16> grad_out, double epsilon) {
  const size_t width = weight.size();
  RmsNormGradients grads{std::vector<double>(x.size()), std::vector<double>(width, 0)};
  for (size_t row = 0; row < x.size(); row += width) {
    const double inverse = inverse_rms(x.subspan(row, width), epsilon);
    double mean = 0;
    for (size_t i = 0; i < width; ++i) {
      mean +=
          double{to_float(weight[i])} * to_float(grad_out[row + i]) * to_float(x[row + i]) / static_cast<double>(width);
    }
    for (size_t i = 0; i < width; ++i) {
      const double value = to_float(x[row + i]), grad = to_float(grad_out[row + i]);
      grads.x[row + i] = inverse * (to_float(weight[i]) * grad - value * inverse * inverse * mean);
      grads.weight[i] += grad * value * inverse;
    }
  }
  return grads;
}

// One head at one position: (x[i], x[i + size/2]) rotated by position / base^(2i / size).
inline std::vector<double> rope(std::span<const bf16> head, int position, double base) {
  const size_t half = head.size() / 2;
  std::vector<double> out(head.size());
  for (size_t i = 0; i < half; ++i) {
    const double angle = position / std::pow(base, static_cast<double>(i) / static_cast<double>(half));
    const double a = to_float(head[i]), b = to_float(head[half + i]);
    out[i] = a * std::cos(angle) - b * std::sin(angle);
    out[half + i] = b * std::cos(angle) + a * std::sin(angle);
  }
  return out;
}

inline double sigmoid(double x) { return 1 / (1 + std::exp(-x)); }

// A gate x sigmoid(argument(x)): SiLU, or GELU by the hyperbolic tangent.
struct Gate {
  double (*argument)(double x);
  double (*derivative)(double x);  // of the argument
};
inline constexpr double kGeluLinear = 1.5957691216057308, kGeluCubic = 0.044715 * kGeluLinear;  // sqrt(8 / pi)
inline constexpr Gate kSilu = {[](double x) { return x; }, [](double) { return 1.0; }};
inline constexpr Gate kGeluTanh = {[](double x) { return x * (kGeluLinear + kGeluCubic * x * x); },
                                   [](double x) { return kGeluLinear + 3 * kGeluCubic * x * x; }};

// gate_up is [row][2 * width], gate first: gate sigmoid(argument(gate)) up.
inline std::vector<double> gated(const Gate& gate, std::span<const bf16> gate_up, size_t width) {
  std::vector<double> out;
  for (size_t row = 0; row < gate_up.size(); row += 2 * width) {
    for (size_t i = 0; i < width; ++i) {
      const double x = to_float(gate_up[row + i]);
      out.push_back(x * sigmoid(gate.argument(x)) * to_float(gate_up[row + width + i]));
    }
  }
  return out;
}

// With s = sigmoid(argument(gate)): d gate = g up s (1 + gate (1 - s) derivative(gate)), d up = g gate s.
inline std::vector<double> gated_backward(const Gate& gate, std::span<const bf16> gate_up,
                                          std::span<const bf16> grad_out, size_t width) {
  std::vector<double> grads(gate_up.size());
  for (size_t row = 0; row < gate_up.size(); row += 2 * width) {
    for (size_t i = 0; i < width; ++i) {
      const double x = to_float(gate_up[row + i]), up = to_float(gate_up[row + width + i]);
      const double grad = to_float(grad_out[row / 2 + i]), s = sigmoid(gate.argument(x));
      grads[row + i] = grad * up * s * (1 + x * (1 - s) * gate.derivative(x));
      grads[row + width + i] = grad * x * s;
    }
  }
  return grads;
}

}  // namespace tandem::kernels::reference
