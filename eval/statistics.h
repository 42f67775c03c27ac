// How sure an evaluation is: pass@k, and the difference of two evaluations of the same tasks.
//
// Samples of one task are no independent draws, so tasks are the unit: they are resampled whole and paired with
// themselves (Miller, "Adding Error Bars to Evals", arXiv 2411.00640). Resamples are drawn with a fixed seed: the same
// scores give the same figures everywhere. Pure functions.
#pragma once

#include <optional>
#include <span>
#include <vector>

namespace tandem::eval {

inline constexpr int kResamples = 10'000;
// The probability with which a regression of Difference::least_detectable is found.
inline constexpr double kPower = 0.8;

// The probability that one of k samples passes, estimated from `samples` of which `passed` did: 1 - C(n-c, k) / C(n, k)
// (Chen et al., arXiv 2107.03374, equation 1). 1 <= k <= samples.
double pass_at_k(int samples, int passed, int k);

// One task in both evaluations: shares of its samples that passed, and what the task counts.
struct PairedRate {
  double before = 0, after = 0;
  double weight = 1;
};

struct Difference {
  double points = 0;             // weighted mean of after - before; negative is worse
  double low = 0, high = 0;      // at `confidence`
  double low95 = 0, high95 = 0;  // at 95 %
  // The least loss that a comparison of so many such tasks finds with probability kPower.
  double least_detectable = 0;
  int tasks = 0;
};
// Percentile bootstrap over tasks, the percentiles widened for few tasks as a t interval is (Hesterberg, arXiv
// 1411.5279, section 5.3). Nothing where there is no task.
std::optional<Difference> paired_difference(std::span<const PairedRate> tasks, double confidence);

struct McNemar {
  int lost = 0, won = 0;  // pairs that passed before alone, and after alone
  double p_value = 1;     // exact, two-sided
};
McNemar mcnemar(int lost, int won);

// The `share` quantile by linear interpolation between order statistics (type 7 of Hyndman and Fan). Nothing where
// there is no value.
std::optional<double> quantile(std::vector<double> values, double share);

}  // namespace tandem::eval
