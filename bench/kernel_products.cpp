// Products and what is made of them: gemm, attention, the head.
#include <fmt/format.h>

#include "bench/kernel_bench.h"
#include "kernels/attention.h"
#include "kernels/gemm.h"
#include "kernels/lm_head.h"

namespace tandem::bench {

using kernels::bf16;

namespace {

// With panels of bf16, and with panels of codes.
Status measure_gemm(KernelBench& bench, const ProductShape& shape) {
  const int m = shape.m, n = shape.n, k = shape.k;
  const auto a = filled(static_cast<size_t>(m) * k, kernels::to_bf16(1)),
             b = filled(kernels::packed_size(n, k), kernels::to_bf16(1));
  const std::vector<kernels::e4m3> codes(static_cast<size_t>(n) * k, kernels::to_e4m3(1));
  const std::vector<kernels::e8m0> scales(
      kernels::scale_blocks(n, kernels::kScaleBlock) * kernels::scale_blocks(k, kernels::kScaleBlock), {127});
  auto packed = filled<std::byte>(kernels::packed_codes_size(n, k));
  TRY(kernels::pack_codes(bench.stream, {.codes = codes.data(),
                                         .scales = scales.data(),
                                         .packed = packed.data(),
                                         .n = n,
                                         .k = k,
                                         .block_rows = kernels::kScaleBlock}));
  auto out = filled<bf16>(static_cast<size_t>(m) * n);
  for (const bool coded : {false, true}) {
    const auto right =
        coded ? kernels::RightSide<bf16>(std::as_const(packed).data()) : kernels::RightSide<bf16>(b.data());
    const double seconds = TRY(median_seconds(bench.seconds, [&] {
      return kernels::gemm(bench.stream, {.a = a.data(),
                                          .a_stride = static_cast<size_t>(k),
                                          .b = right,
                                          .out = out.data(),
                                          .out_stride = static_cast<size_t>(n),
                                          .m = m,
                                          .n = n,
                                          .k = k});
    }));
    bench.add_product(fmt::format("gemm {}x{}x{}{}", m, n, k, coded ? ", weights in fp8" : ""), 2.0 * m * n * k,
                      coded ? static_cast<double>(packed.size()) : 2.0 * n * k, seconds);
  }
  return {};
}

// SmolLM2-135M's heads.
constexpr kernels::AttentionShape kHeads{.heads = 9, .kv_heads = 3, .head_size = 64, .scale = 0.125f};

// Sequences of `length` tokens, as many layers of them as no cache holds, and `rows` queries that stand last of each.
class AttentionBench {
 public:
  AttentionBench(int sequences, int length, int rows)
      : rows_(rows),
        layers_(rows > 1 ? 1 : 6),
        memory_(filled(pages_of(sequences, length) * layers_ * kernels::page_elements(kHeads), kernels::to_bf16(0.5f))),
        queries_(static_cast<size_t>(sequences) * rows * kWidth, kernels::to_bf16(0.25f)),
        out_(queries_.size()) {
    const size_t page = kernels::page_elements(kHeads), each = pages_of(1, length);
    for (size_t i = 0; i < pages_of(sequences, length) * layers_; ++i)
      pages_.push_back({&memory_[i * page], &memory_[i * page + kernels::page_keys(kHeads)]});
    for (int i = 0; i < sequences * layers_; ++i) {
      const auto own = std::span<const kernels::KeyValuePage>(pages_).subspan(i * each, each);
      runs_.push_back({i % sequences * rows, rows, length - rows, own});
    }
  }
  // Runs one layer, then the next.
  Status run(kernels::Stream& stream) {
    const size_t sequences = runs_.size() / layers_;
    layer_ = (layer_ + 1) % layers_;
    return kernels::attention(stream, kHeads, queries_.data(), kWidth,
                              std::span<const kernels::QueryRun>(runs_).subspan(layer_ * sequences, sequences),
                              out_.data(), kWidth);
  }
  double products() const {
    double seen = 0;  // keys of all rows
    for (size_t i = 0; i < runs_.size() / layers_; ++i) seen += rows_ * (runs_[i].position + (rows_ + 1) / 2.0);
    return 4.0 * kWidth * seen;
  }
  double bytes() const { return static_cast<double>(memory_.size() / layers_ * sizeof(bf16)); }

 private:
  static constexpr int kWidth = kHeads.heads * kHeads.head_size;
  static size_t pages_of(int sequences, int length) {
    return static_cast<size_t>(sequences) * ((length + kernels::kPageTokens - 1) / kernels::kPageTokens);
  }
  const int rows_, layers_;
  Buffer<bf16> memory_;
  std::vector<bf16> queries_, out_;
  std::vector<kernels::KeyValuePage> pages_;
  std::vector<kernels::QueryRun> runs_;
  int layer_ = 0;
};

}  // namespace

Status bench_gemm(KernelBench& bench) {
  if (bench.shape.m > 0) return measure_gemm(bench, bench.shape);
  // Layers of SmolLM2-135M and Qwen3-0.6B in prefill; a head, which no cache holds, in decode; a large one.
  for (const ProductShape shape : {ProductShape{512, 3072, 576},
                                   {512, 576, 1536},
                                   {512, 6144, 1024},
                                   {64, 3072, 576},
                                   {64, 49152, 576},
                                   {16, 49152, 576},
                                   {4, 49152, 576},
                                   {1, 49152, 576},
                                   {2048, 4096, 4096}}) {
    TRY(measure_gemm(bench, shape));
  }
  return {};
}

Status bench_attention(KernelBench& bench) {
  for (const auto& [name, length] :
       {std::pair{"attention, prefill of 512, 9 of 3 heads of 64", 512}, {"attention, prefill of 2048", 2048}}) {
    AttentionBench prefill(1, length, length);
    bench.add_product(name, prefill.products(), 0,
                      TRY(median_seconds(bench.seconds, [&] { return prefill.run(bench.stream); })));
  }
  AttentionBench decode(16, 1024, 1);
  bench.add_bytes("attention, decode of 16 at 1024, keys and values", decode.bytes(),
                  TRY(median_seconds(bench.seconds, [&] { return decode.run(bench.stream); })));
  return {};
}

Status bench_lm_head(KernelBench& bench) {
  constexpr int kRows = 1024, kWidth = 576, kVocabulary = 49152;
  const auto hidden = filled(size_t{kRows} * kWidth, kernels::to_bf16(0.1f)),
             head = filled(kernels::packed_size(kVocabulary, kWidth), kernels::to_bf16(0.1f));
  std::vector<float> log_sum(kRows), logprobs(kRows);
  std::vector<kernels::TokenPick> picks;
  for (int row = 0; row < kRows; ++row) picks.push_back({row, row});
  const double seconds = TRY(median_seconds(bench.seconds, [&] {
    return kernels::lm_head(bench.stream,
                            kernels::LmHead{.hidden = hidden.data(),
                                            .head = head.data(),
                                            .rows = kRows,
                                            .width = kWidth,
                                            .vocabulary = kVocabulary,
                                            .log_sum = log_sum.data()},
                            picks, logprobs);
  }));
  bench.add_product(fmt::format("log-probabilities, {}x{}x{}", kRows, kVocabulary, kWidth),
                    2.0 * kRows * kVocabulary * kWidth, 2.0 * kVocabulary * kWidth, seconds);
  return {};
}

}  // namespace tandem::bench
