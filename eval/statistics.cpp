#include "eval/statistics.h"

#include <algorithm>
#include <boost/math/distributions/binomial.hpp>
#include <boost/math/distributions/normal.hpp>
#include <boost/math/distributions/students_t.hpp>
#include <cmath>

#include "base/random.h"

namespace tandem::eval {
namespace {

constexpr uint64_t kResampleSeed = 20250711;

double normal_quantile(double share) { return boost::math::quantile(boost::math::normal(), share); }

// The share below which the lower end of a percentile interval lies.
double lower_share(double confidence, size_t tasks) {
  const double alpha = (1 - confidence) / 2;
  if (tasks < 2) return alpha;
  const auto n = static_cast<double>(tasks);
  const double t = boost::math::quantile(boost::math::students_t(n - 1), alpha);
  return boost::math::cdf(boost::math::normal(), std::sqrt(n / (n - 1)) * t);
}

double weighted_mean(std::span<const PairedRate> tasks, std::span<const size_t> drawn) {
  double sum = 0, weight = 0;
  for (const size_t i : drawn) {
    sum += tasks[i].weight * (tasks[i].after - tasks[i].before);
    weight += tasks[i].weight;
  }
  return weight > 0 ? sum / weight : 0;
}

double sorted_quantile(const std::vector<double>& sorted, double share) {
  const double place = share * static_cast<double>(sorted.size() - 1);
  const auto below = static_cast<size_t>(place);
  const size_t above = std::min(below + 1, sorted.size() - 1);
  return sorted[below] + (place - static_cast<double>(below)) * (sorted[above] - sorted[below]);
}

}  // namespace

double pass_at_k(int samples, int passed, int k) {
  if (samples - passed < k) return 1;
  double none = 1;
  for (int i = samples - passed + 1; i <= samples; ++i) none *= 1 - static_cast<double>(k) / i;
  return 1 - none;
}

std::optional<Difference> paired_difference(std::span<const PairedRate> tasks, double confidence) {
  std::vector<PairedRate> counted;
  std::copy_if(tasks.begin(), tasks.end(), std::back_inserter(counted), [](const auto& t) { return t.weight > 0; });
  if (counted.empty()) return std::nullopt;
  const size_t count = counted.size();
  std::vector<size_t> drawn(count);
  for (size_t i = 0; i < count; ++i) drawn[i] = i;
  Difference out{.points = weighted_mean(counted, drawn), .tasks = static_cast<int>(count)};

  Random random(kResampleSeed);
  std::vector<double> means(kResamples);
  for (double& mean : means) {
    for (size_t& index : drawn) index = random.below(count);
    mean = weighted_mean(counted, drawn);
  }
  std::sort(means.begin(), means.end());
  const auto ends = [&](double at, double& low, double& high) {
    const double share = lower_share(at, count);
    low = sorted_quantile(means, share);
    high = sorted_quantile(means, 1 - share);
  };
  ends(confidence, out.low, out.high);
  ends(0.95, out.low95, out.high95);

  // Where no task differs there is no spread to go by: then it is the least share of lost tasks that nearly every
  // resample meets.
  double square = 0, centre = 0;
  for (const double mean : means) centre += mean / kResamples;
  for (const double mean : means) square += (mean - centre) * (mean - centre) / (kResamples - 1);
  const double alpha = (1 - confidence) / 2;
  const double by_spread = (normal_quantile(1 - alpha) + normal_quantile(kPower)) * std::sqrt(square);
  const double by_count = 1 - std::pow(lower_share(confidence, count), 1 / static_cast<double>(count));
  out.least_detectable = std::min(1.0, std::max(by_spread, by_count));
  return out;
}

McNemar mcnemar(int lost, int won) {
  McNemar out{.lost = lost, .won = won};
  const int pairs = lost + won;
  if (pairs == 0) return out;
  const boost::math::binomial even(pairs, 0.5);
  out.p_value = std::min(1.0, 2 * boost::math::cdf(even, std::min(lost, won)));
  return out;
}

std::optional<double> quantile(std::vector<double> values, double share) {
  if (values.empty()) return std::nullopt;
  std::sort(values.begin(), values.end());
  return sorted_quantile(values, share);
}

}  // namespace tandem::eval
