#include "kernels/limits.h"

#include <algorithm>
#include <chrono>

#include "base/buffer.h"
#include "kernels/cpu/operations.h"

namespace tandem::kernels {

namespace {

// The best of a few rounds: what disturbs a measurement only ever slows it down.
template <typename Round>
double best_rate(double amount, const Round& round) {
  double best = 0;
  for (int i = 0; i < 5; ++i) {
    const auto start = std::chrono::steady_clock::now();
    round();
    best = std::max(best, amount / std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count());
  }
  return best;
}

}  // namespace

double measure_peak_flops(Stream& stream) {
  constexpr int kRounds = 10000000;  // long enough for the scheduler to give every thread a core
  const int threads = stream.threads().threads();
  const double flops = stream.operations().peak_products(stream.threads(), 1) * threads * kRounds;
  return best_rate(flops, [&] { (void)stream.operations().peak_products(stream.threads(), kRounds); });
}

double measure_read_bandwidth(Stream& stream) {
  Buffer<float> memory(size_t{1} << 26);  // 256 MiB, beyond any cache
  std::fill(memory.begin(), memory.end(), 1.0f);
  return best_rate(static_cast<double>(memory.size() * sizeof(float)),
                   [&] { (void)stream.operations().read_all(stream.threads(), memory.data(), memory.size()); });
}

}  // namespace tandem::kernels
