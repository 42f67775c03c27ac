// How surprised is a row of its token, alone and among a thousand others? The same, to the bit.
//
//   cmake -S kernels/example -B build/example && cmake --build build/example && build/example/bin/kernels_example
#include <cstdio>
#include <random>
#include <vector>

#include "kernels/lm_head.h"

using namespace tandem;

int main() {
  constexpr int kRows = 1000, kWidth = 576, kVocabulary = 49152;
  std::mt19937 random(1);
  std::normal_distribution<float> normal(0, 0.05f);
  const auto draw = [&](size_t count) {
    std::vector<kernels::bf16> values(count);
    for (auto& value : values) value = kernels::to_bf16(normal(random));
    return values;
  };
  const auto hidden = draw(size_t{kRows} * kWidth), head = draw(size_t{kVocabulary} * kWidth);
  auto stream = kernels::Stream::cpu(/*threads=*/2);
  std::vector<kernels::bf16> packed(kernels::packed_size(kVocabulary, kWidth));
  if (!stream || !kernels::pack(*stream, head.data(), kVocabulary, kWidth, packed.data())) return 3;

  // The log-probability of token 42 after `row`, computed among the rows from `first` on.
  const auto logprob = [&](int row, int first, int rows) {
    std::vector<float> log_sum(static_cast<size_t>(rows));
    const kernels::TokenPick pick{row - first, 42};
    float result = 0;
    const Status status = kernels::lm_head(*stream,
                                           {.hidden = hidden.data() + size_t(first) * kWidth,
                                            .head = packed.data(),
                                            .rows = rows,
                                            .width = kWidth,
                                            .vocabulary = kVocabulary,
                                            .log_sum = log_sum.data()},
                                           std::span(&pick, 1), std::span(&result, 1));
    if (!status) std::fprintf(stderr, "%s\n", status.to_string().c_str());
    return result;
  };
  const float alone = logprob(777, 777, 1), among = logprob(777, 0, kRows);
  std::printf("%s: alone %.9g, among %d rows %.9g\n", stream->numerics_id().c_str(), alone, kRows, among);
  return alone == among && alone < 0 ? 0 : 1;
}
