#include <fmt/format.h>

#include "base/random.h"
#include "bench/measure.h"
#include "kernels/experts.h"
#include "kernels/gemm.h"
#include "kernels/optimizer.h"
#include "kernels/quantize.h"

namespace tandem::bench {

namespace {

using kernels::bf16;

// Beyond any cache; the smaller scales are left out of the bytes.
Status measure_quantise(const Settings& settings, kernels::Stream& stream, const Limits& limits,
                        std::vector<Figure>& figures) {
  constexpr int kRows = 4096, kColumns = 8192;
  constexpr size_t kCount = size_t{kRows} * kColumns;
  std::vector<bf16> x(kCount);
  for (size_t i = 0; i < kCount; ++i) x[i] = kernels::to_bf16(static_cast<float>(i % 1021) - 510);
  std::vector<kernels::e4m3> by_row(kCount), by_column(kCount);
  std::vector<kernels::e8m0> row_scales(kCount / 32), column_scales(kCount / 32);
  const auto add = [&](std::string name, double bytes, double seconds) {
    figures.push_back({std::move(name), bytes * kCount / seconds / 1e9, "GB/s", limits.bytes / 1e9, "memory"});
  };
  for (const int block : {kernels::kScaleBlock, kernels::kMicroscaleBlock}) {
    kernels::Quantize arguments{.x = x.data(),
                                .stride = kColumns,
                                .by_row = by_row.data(),
                                .row_scales = row_scales.data(),
                                .rows = kRows,
                                .columns = kColumns,
                                .block = block};
    const auto run = [&] { return kernels::quantize(stream, arguments); };
    add(fmt::format("quantise 1x{}, reads and writes", block), 3, TRY(median_seconds(settings.seconds / 4, run)));
    arguments.by_column = by_column.data();
    arguments.column_scales = column_scales.data();
    add(fmt::format("quantise 1x{} and {}x1, reads and writes", block, block), 4,
        TRY(median_seconds(settings.seconds / 4, run)));
  }
  add("quantise 128x128, reads and writes", 3, TRY(median_seconds(settings.seconds / 4, [&] {
        return kernels::quantize_weight(stream, x.data(), kRows, kColumns, by_row.data(), row_scales.data());
      })));
  return {};
}

// A product of a mixture of experts, rows routed at random: prefill, and decode, which reads most weights for few rows.
Status measure_grouped(const Settings& settings, kernels::Stream& stream, const Limits& limits,
                       std::vector<Figure>& figures) {
  constexpr int kExperts = 64, kChosen = 8, kN = 512, kK = 1024;
  const std::vector<bf16> b(kExperts * kernels::packed_size(kN, kK), kernels::to_bf16(1));
  for (const int tokens : {512, 16}) {
    const int rows = tokens * kChosen;
    std::vector<float> logits(static_cast<size_t>(tokens) * kExperts), weights(rows);
    Random random(1);
    for (float& logit : logits) logit = static_cast<float>(random.normal());
    std::vector<int32_t> ids(rows), places(rows), offsets(kExperts + 1);
    TRY(kernels::route(stream, {.logits = logits.data(),
                                .ids = ids.data(),
                                .weights = weights.data(),
                                .rows = tokens,
                                .experts = kExperts,
                                .chosen = kChosen}));
    TRY(kernels::group_by_expert(stream, {.ids = ids.data(),
                                          .offsets = offsets.data(),
                                          .places = places.data(),
                                          .rows = tokens,
                                          .experts = kExperts,
                                          .chosen = kChosen}));
    const std::vector<bf16> a(static_cast<size_t>(rows) * kK, kernels::to_bf16(1));
    std::vector<bf16> out(static_cast<size_t>(rows) * kN);
    const double seconds = TRY(median_seconds(settings.seconds / 4, [&] {
      return kernels::grouped_gemm(stream, {.a = a.data(),
                                            .a_stride = kK,
                                            .offsets = offsets.data(),
                                            .b = b.data(),
                                            .out = out.data(),
                                            .out_stride = kN,
                                            .groups = kExperts,
                                            .m = rows,
                                            .n = kN,
                                            .k = kK});
    }));
    int active = 0;
    for (int expert = 0; expert < kExperts; ++expert) active += offsets[expert + 1] > offsets[expert];
    const double flops = 2.0 * rows * kN * kK, bytes = 2.0 * active * kN * kK;
    const bool memory = flops / limits.flops < bytes / limits.bytes;
    figures.push_back(
        {fmt::format("grouped gemm, {} tokens, {} of {} experts, {}x{}", tokens, kChosen, kExperts, kN, kK),
         flops / seconds / 1e9, "GFLOP/s", (memory ? limits.bytes * flops / bytes : limits.flops) / 1e9,
         memory ? "memory" : "arithmetic"});
  }
  return {};
}

// A product with panels of bf16, and the same with panels of codes; beyond any cache both read memory, or multiply.
Status measure_gemm(const Settings& settings, kernels::Stream& stream, const Limits& limits, int m, int n, int k,
                    std::vector<Figure>& figures) {
  const std::vector<bf16> a(static_cast<size_t>(m) * k, kernels::to_bf16(1)),
      b(kernels::packed_size(n, k), kernels::to_bf16(1));
  const std::vector<kernels::e4m3> codes(static_cast<size_t>(n) * k, kernels::to_e4m3(1));
  const std::vector<kernels::e8m0> scales(
      kernels::scale_blocks(n, kernels::kScaleBlock) * kernels::scale_blocks(k, kernels::kScaleBlock), {127});
  std::vector<std::byte> packed(kernels::packed_codes_size(n, k));
  TRY(kernels::pack_codes(stream, {.codes = codes.data(),
                                   .scales = scales.data(),
                                   .packed = packed.data(),
                                   .n = n,
                                   .k = k,
                                   .block_rows = kernels::kScaleBlock}));
  std::vector<bf16> out(static_cast<size_t>(m) * n);
  for (const bool coded : {false, true}) {
    const double seconds = TRY(median_seconds(settings.seconds / 4, [&] {
      return kernels::gemm(stream,
                           {.a = a.data(),
                            .a_stride = static_cast<size_t>(k),
                            .b = coded ? kernels::RightSide<bf16>(packed.data()) : kernels::RightSide<bf16>(b.data()),
                            .out = out.data(),
                            .out_stride = static_cast<size_t>(n),
                            .m = m,
                            .n = n,
                            .k = k});
    }));
    const double flops = 2.0 * m * n * k, bytes = coded ? static_cast<double>(packed.size()) : 2.0 * n * k;
    const bool memory = bytes > 16e6 && flops / limits.flops < bytes / limits.bytes;  // smaller ones stay in a cache
    figures.push_back({fmt::format("gemm {}x{}x{}{}", m, n, k, coded ? ", weights in fp8" : ""), flops / seconds / 1e9,
                       "GFLOP/s", (memory ? limits.bytes * flops / bytes : limits.flops) / 1e9,
                       memory ? "memory" : "arithmetic"});
  }
  return {};
}

}  // namespace

Result<std::vector<Figure>> bench_kernels(const Settings& settings) {
  auto stream = TRY(kernels::Stream::cpu(settings.threads));
  const Limits limits = measure_limits(stream);
  std::vector<Figure> figures = {{"peak of products, in registers", limits.flops / 1e9, "GFLOP/s", 0, ""},
                                 {"read bandwidth", limits.bytes / 1e9, "GB/s", 0, ""}};
  struct Shape {
    int m, n, k;
  };
  for (const auto& [m, n, k] : {Shape{512, 3072, 576}, Shape{512, 576, 1536}, Shape{64, 3072, 576},
                                Shape{16, 49152, 576}, Shape{1, 49152, 576}, Shape{2048, 4096, 4096}}) {
    TRY(measure_gemm(settings, stream, limits, m, n, k, figures));
  }
  TRY(measure_grouped(settings, stream, limits, figures));
  const size_t count = size_t{1} << 25;
  std::vector<float> grad(count, 1), master(count, 1), first(count, 0), second(count, 0);
  std::vector<bf16> weight(count);
  int64_t step = 0;
  const double seconds = TRY(median_seconds(settings.seconds, [&] {
    return kernels::adamw(stream, {.grad = grad.data(),
                                   .master = master.data(),
                                   .first_moment = first.data(),
                                   .second_moment = second.data(),
                                   .weight = weight.data(),
                                   .count = count,
                                   .learning_rate = 1e-5f,
                                   .step = ++step});
  }));
  figures.push_back({"AdamW, reads and writes", 30.0 * static_cast<double>(count) / seconds / 1e9, "GB/s",
                     limits.bytes / 1e9, "memory"});
  TRY(measure_quantise(settings, stream, limits, figures));
  return figures;
}

}  // namespace tandem::bench
