#include "base/random.h"

#include <cmath>

#include "base/digest.h"

namespace tandem {

std::array<uint32_t, 4> philox4x32(uint64_t key, uint64_t counter_low, uint64_t counter_high) {
  constexpr uint32_t kMultiplier0 = 0xD2511F53, kMultiplier1 = 0xCD9E8D57;
  constexpr uint32_t kWeyl0 = 0x9E3779B9, kWeyl1 = 0xBB67AE85;
  std::array<uint32_t, 4> x = {static_cast<uint32_t>(counter_low), static_cast<uint32_t>(counter_low >> 32),
                               static_cast<uint32_t>(counter_high), static_cast<uint32_t>(counter_high >> 32)};
  uint32_t key0 = static_cast<uint32_t>(key), key1 = static_cast<uint32_t>(key >> 32);
  for (int round = 0; round < 10; ++round) {
    const uint64_t product0 = uint64_t{kMultiplier0} * x[0];
    const uint64_t product1 = uint64_t{kMultiplier1} * x[2];
    x = {static_cast<uint32_t>(product1 >> 32) ^ x[1] ^ key0, static_cast<uint32_t>(product1),
         static_cast<uint32_t>(product0 >> 32) ^ x[3] ^ key1, static_cast<uint32_t>(product0)};
    key0 += kWeyl0;
    key1 += kWeyl1;
  }
  return x;
}

namespace {
uint64_t bits_at(uint64_t seed, uint64_t position, uint64_t stream) {
  const auto words = philox4x32(seed, position, stream);
  return (uint64_t{words[1]} << 32) | words[0];
}
}  // namespace

double uniform_at(uint64_t seed, uint64_t position, uint64_t stream) {
  return static_cast<double>(bits_at(seed, position, stream) >> 11) * 0x1.0p-53;
}

uint64_t derive_seed(uint64_t seed, std::initializer_list<uint64_t> parts) {
  uint64_t index = 0;
  for (const uint64_t part : parts) seed = bits_at(seed, part, ++index);
  return seed;
}

uint64_t derive_seed(uint64_t seed, std::string_view name) { return derive_seed(seed, {digest_of(name).low}); }

uint64_t Random::bits() { return bits_at(seed_, position_++, 0); }
double Random::uniform() { return static_cast<double>(bits() >> 11) * 0x1.0p-53; }

uint64_t Random::below(uint64_t bound) {
  const uint64_t limit = UINT64_MAX - UINT64_MAX % bound;
  uint64_t draw = bits();
  while (draw >= limit) draw = bits();
  return draw % bound;
}

int64_t Random::between(int64_t low, int64_t high) {
  return low + static_cast<int64_t>(below(static_cast<uint64_t>(high - low) + 1));
}

double Random::normal() {
  const double radius = std::sqrt(-2.0 * std::log(1.0 - uniform()));
  return radius * std::cos(2.0 * M_PI * uniform());
}

}  // namespace tandem
