#include "dashboard/statistics.h"

#include <algorithm>

#include "base/random.h"

namespace tandem::dashboard {

namespace {

constexpr uint64_t kSeed = 20240607;

// The middle 95 % of `statistic` over resamples of `count` items; `statistic` is given the drawn indices.
template <typename Statistic>
Estimate bootstrap(double value, size_t count, const Statistic& statistic) {
  Random random(kSeed);
  std::vector<double> values;
  std::vector<size_t> drawn(count);
  for (int i = 0; i < kResamples; ++i) {
    for (size_t& index : drawn) index = random.below(count);
    values.push_back(statistic(drawn));
  }
  std::sort(values.begin(), values.end());
  return {.value = value, .low = values[kResamples / 40], .high = values[kResamples - 1 - kResamples / 40]};
}

}  // namespace

std::optional<Estimate> pass_rate(std::span<const TaskScore> tasks) {
  std::vector<TaskScore> known;
  std::copy_if(tasks.begin(), tasks.end(), std::back_inserter(known), [](const TaskScore& t) { return t.samples > 0; });
  if (known.empty()) return std::nullopt;
  std::vector<size_t> all(known.size());
  for (size_t i = 0; i < all.size(); ++i) all[i] = i;
  const auto rate = [&](std::span<const size_t> indices) {
    double passed = 0, samples = 0;
    for (const size_t index : indices) {
      passed += known[index].passed;
      samples += known[index].samples;
    }
    return passed / samples;
  };
  return bootstrap(rate(all), known.size(), rate);
}

std::optional<Estimate> paired_gain(std::span<const TaskScore> before, std::span<const TaskScore> after) {
  std::vector<double> gains;
  for (size_t i = 0; i < before.size() && i < after.size(); ++i) {
    if (before[i].samples == 0 || after[i].samples == 0) continue;
    gains.push_back(after[i].passed / after[i].samples - before[i].passed / before[i].samples);
  }
  if (gains.empty()) return std::nullopt;
  std::vector<size_t> all(gains.size());
  for (size_t i = 0; i < all.size(); ++i) all[i] = i;
  const auto mean = [&](std::span<const size_t> indices) {
    double sum = 0;
    for (const size_t index : indices) sum += gains[index];
    return sum / static_cast<double>(indices.size());
  };
  return bootstrap(mean(all), gains.size(), mean);
}

}  // namespace tandem::dashboard
