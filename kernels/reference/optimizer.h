// One step of optimizer.h's AdamW for one weight, and muon.h's orthogonal form of a matrix, in double. Pure functions;
// any thread.
#pragma once

#include <algorithm>
#include <cmath>
#include <vector>

#include "kernels/optimizer.h"

namespace tandem::kernels::reference {

struct AdamWState {
  double master, first_moment, second_moment;
};

// The settings are those of `a`; its arrays are not looked at.
template <typename Moment>
AdamWState adamw(const BasicAdamW<Moment>& a, double grad, AdamWState old) {
  const double rate = a.learning_rate, b1 = a.beta1, b2 = a.beta2, step = static_cast<double>(a.step);
  const double g = grad * a.grad_scale;
  const double m = b1 * old.first_moment + (1 - b1) * g;
  const double v = b2 * old.second_moment + (1 - b2) * g * g;
  const double moved = m / (1 - std::pow(b1, step)) / (std::sqrt(v / (1 - std::pow(b2, step))) + a.epsilon);
  return {old.master * (1 - rate * a.weight_decay) - rate * moved, m, v};
}

// out[i][j] = sum over k of a[i][k] b[k][j]; a is [rows][inner], b [inner][columns].
inline std::vector<double> product(const std::vector<double>& a, const std::vector<double>& b, size_t rows,
                                   size_t inner, size_t columns) {
  std::vector<double> out(rows * columns, 0);
  for (size_t i = 0; i < rows; ++i)
    for (size_t k = 0; k < inner; ++k)
      for (size_t j = 0; j < columns; ++j) out[i * columns + j] += a[i * inner + k] * b[k * columns + j];
  return out;
}
inline std::vector<double> transposed(const std::vector<double>& a, size_t rows, size_t columns) {
  std::vector<double> out(a.size());
  for (size_t i = 0; i < rows; ++i)
    for (size_t j = 0; j < columns; ++j) out[j * rows + i] = a[i * columns + j];
  return out;
}

// X = u / |u|, then X = 3.4445 X - 4.775 (X X^T) X + 2.0315 (X X^T)^2 X, `iterations` times: the same polynomial of the
// singular values whichever side is shorter.
inline std::vector<double> orthogonal(std::vector<double> u, size_t rows, size_t columns, int iterations) {
  double squares = 0;
  for (const double value : u) squares += value * value;
  for (double& value : u) value /= std::max(std::sqrt(squares), 1e-7);
  for (int i = 0; i < iterations; ++i) {
    const auto gram = product(u, transposed(u, rows, columns), rows, columns, rows);
    const auto once = product(gram, u, rows, rows, columns), twice = product(gram, once, rows, rows, columns);
    for (size_t j = 0; j < u.size(); ++j) u[j] = 3.4445 * u[j] - 4.775 * once[j] + 2.0315 * twice[j];
  }
  return u;
}

}  // namespace tandem::kernels::reference
