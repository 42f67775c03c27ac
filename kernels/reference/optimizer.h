// One step of optimizer.h's AdamW for one weight, in double. Pure function; any thread.
#pragma once

#include <cmath>

#include "kernels/optimizer.h"

namespace tandem::kernels::reference {

struct AdamWState {
  double master, first_moment, second_moment;
};

// The settings are those of `a`; its arrays are not looked at.
inline AdamWState adamw(const AdamW& a, double grad, AdamWState old) {
  const double rate = a.learning_rate, b1 = a.beta1, b2 = a.beta2, step = static_cast<double>(a.step);
  const double g = grad * a.grad_scale;
  const double m = b1 * old.first_moment + (1 - b1) * g;
  const double v = b2 * old.second_moment + (1 - b2) * g * g;
  const double moved = m / (1 - std::pow(b1, step)) / (std::sqrt(v / (1 - std::pow(b2, step))) + a.epsilon);
  return {old.master * (1 - rate * a.weight_decay) - rate * moved, m, v};
}

}  // namespace tandem::kernels::reference
