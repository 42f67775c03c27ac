// Panels of the vocabulary, 64 columns each, and how sums over them are joined (kernels/lm_head.h).
#pragma once

#include "kernels/cuda/attention.cuh"

namespace tandem::kernels::cuda {

constexpr int kPanel = 64;       // columns
constexpr int kSlabPanels = 64;  // joined in order; then the slabs are, in order
static_assert(kPanel == kKeyBlock);

TANDEM_HD int64_t panels_of(int vocabulary) { return pieces(vocabulary, kPanel); }

// A maximum, the sum of e^(x - maximum), and where the maximum was first seen.
struct PanelSum {
  float maximum, sum;
  int32_t best;
};

TANDEM_HD void join(PanelSum& total, const PanelSum& next) {
  if (next.maximum > total.maximum) total.best = next.best;
  if (next.maximum == -infinity()) return;
  const float maximum = larger(total.maximum, next.maximum);
  const float kept = total.maximum == -infinity() ? 0.0f : total.sum * exponential(total.maximum - maximum);
  total.sum = kept + next.sum * exponential(next.maximum - maximum);
  total.maximum = maximum;
}

}  // namespace tandem::kernels::cuda
