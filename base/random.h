// Counter-based random numbers: a draw is a function of (seed, position), not of the order of calls.
//
// Philox4x32-10 (Salmon et al., "Parallel Random Numbers: As Easy as 1, 2, 3", SC 2011): four 32-bit words from a
// 64-bit key and a 128-bit counter. A draw keyed by (seed, position) is the same in any order, batch, process or
// attempt.
#pragma once

#include <array>
#include <cstdint>
#include <initializer_list>
#include <span>
#include <string_view>
#include <vector>

namespace tandem {

std::array<uint32_t, 4> philox4x32(uint64_t key, uint64_t counter_low, uint64_t counter_high = 0);

// In [0, 1), with 53 random bits.
double uniform_at(uint64_t seed, uint64_t position, uint64_t stream = 0);

// A well-mixed seed for a part of a whole: the same parts give the same seed on every machine.
uint64_t derive_seed(uint64_t seed, std::initializer_list<uint64_t> parts);
uint64_t derive_seed(uint64_t seed, std::string_view name);

// A sequence of draws for code that composes things (tasks, shuffles). Value type; the state is (seed, position).
class Random {
 public:
  explicit Random(uint64_t seed) : seed_(seed) {}

  uint64_t bits();
  double uniform();                            // [0, 1)
  uint64_t below(uint64_t bound);              // [0, bound), unbiased; bound > 0
  int64_t between(int64_t low, int64_t high);  // both inclusive
  bool chance(double probability) { return uniform() < probability; }
  double normal();  // mean 0, deviation 1

  template <typename Container>
  const auto& pick(const Container& items) {
    return *(std::begin(items) + below(std::size(items)));
  }
  template <typename T>
  void shuffle(std::vector<T>& items) {
    for (size_t i = items.size(); i > 1; --i) std::swap(items[i - 1], items[below(i)]);
  }

 private:
  uint64_t seed_;
  uint64_t position_ = 0;
};

}  // namespace tandem
