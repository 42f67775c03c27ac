// Every target over its seeds and a fixed set of mutants. What scripts/fuzz finds is added as a test of its own beside
// the decoder, by the name of what was wrong.
#include <gtest/gtest.h>

#include "base/random.h"
#include "tests/fuzz/targets.h"
#include "tests/repetitions.h"

namespace tandem::fuzz {
namespace {

std::string mutated(std::string bytes, const std::vector<std::string>& seeds, Random& random) {
  static constexpr char kTelling[] = {'\0', '\x01', '\x7f', '\xff', '"', '{', '}', '<', '\n', '\\', '9', '-'};
  const size_t changes = 1 + random.below(4);
  for (size_t i = 0; i < changes; ++i) {
    if (bytes.empty()) bytes = random.pick(seeds);
    if (bytes.empty()) bytes.assign(1, 'x');
    const size_t at = random.below(bytes.size()), length = 1 + random.below(std::min<size_t>(bytes.size() - at, 16));
    switch (random.below(7)) {
      case 0:
        bytes[at] = static_cast<char>(bytes[at] ^ (1 << random.below(8)));
        break;
      case 1:
        bytes[at] = random.pick(kTelling);
        break;
      case 2:
        bytes.erase(at, length);
        break;
      case 3:
        bytes.insert(at, bytes.substr(at, length));
        break;
      case 4:
        bytes.resize(at);
        break;
      case 5:
        bytes.insert(at, std::string(length, random.pick(kTelling)));
        break;
      default: {
        const auto& other = random.pick(seeds);
        bytes = bytes.substr(0, at) + other.substr(random.below(other.size() + 1));
      }
    }
  }
  return bytes;
}

class Fuzz : public testing::TestWithParam<Target> {};
INSTANTIATE_TEST_SUITE_P(Decoders, Fuzz, testing::ValuesIn(targets()),
                         [](const auto& info) { return std::string(info.param.name); });

TEST_P(Fuzz, any_bytes_are_read_or_refused) {
  const auto seeds = GetParam().seeds();
  ASSERT_FALSE(seeds.empty());
  Random random(derive_seed(1, GetParam().name));
  const int mutants = repetitions(400, 100'000);
  GetParam().run("");
  for (const auto& seed : seeds) {
    EXPECT_FALSE(seed.empty());
    GetParam().run(seed);
  }
  for (int i = 0; i < mutants; ++i) {
    const auto bytes = mutated(random.pick(seeds), seeds, random);
    SCOPED_TRACE(i);
    GetParam().run(bytes);
  }
}

}  // namespace
}  // namespace tandem::fuzz
