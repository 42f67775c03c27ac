// What goes over rows or arrays once, at the speed of memory: norms, RoPE, SwiGLU, the optimizer, quantising, digests.
#include <fmt/format.h>

#include "base/digest.h"
#include "bench/kernel_bench.h"
#include "kernels/optimizer.h"
#include "kernels/quantize.h"
#include "kernels/transformer_ops.h"

namespace tandem::bench {

using kernels::bf16;

Status bench_rows(KernelBench& bench) {
  constexpr int kRows = 16384, kWidth = 1024, kHead = 64;
  constexpr double kCount = double{kRows} * kWidth;
  std::vector<bf16> x(size_t{kRows} * 2 * kWidth, kernels::to_bf16(0.5f)), out(size_t{kRows} * kWidth);
  const std::vector<bf16> weight(kWidth, kernels::to_bf16(1));
  bench.add_bytes("RMSNorm, reads and writes", 4 * kCount, TRY(median_seconds(bench.seconds, [&] {
                    return kernels::rms_norm(bench.stream, x.data(), weight.data(), 1e-5f, kRows, kWidth, out.data());
                  })));
  bench.add_bytes("SwiGLU, reads and writes", 6 * kCount, TRY(median_seconds(bench.seconds, [&] {
                    return kernels::swiglu(bench.stream, x.data(), kRows, kWidth, out.data());
                  })));
  const std::vector<float> frequencies(kHead / 2, 0.01f);
  const auto table = kernels::rope_table(512, frequencies);
  std::vector<int32_t> positions(kRows);
  for (int i = 0; i < kRows; ++i) positions[i] = i % 512;
  bench.add_bytes("RoPE, reads and writes", 4 * kCount, TRY(median_seconds(bench.seconds, [&] {
                    return kernels::rope(bench.stream, kernels::Rope{.x = out.data(),
                                                                     .stride = kWidth,
                                                                     .positions = positions,
                                                                     .table = table.data(),
                                                                     .table_positions = 512,
                                                                     .rows = kRows,
                                                                     .heads = kWidth / kHead,
                                                                     .head_size = kHead,
                                                                     .rotated = kHead});
                  })));
  return {};
}

Status bench_adamw(KernelBench& bench) {
  const size_t count = size_t{1} << 25;
  std::vector<float> grad(count, 1), master(count, 1), first(count, 0), second(count, 0);
  std::vector<bf16> weight(count);
  int64_t step = 0;
  const double seconds = TRY(median_seconds(bench.seconds, [&] {
    return kernels::adamw(bench.stream, {.grad = grad.data(),
                                         .master = master.data(),
                                         .first_moment = first.data(),
                                         .second_moment = second.data(),
                                         .weight = weight.data(),
                                         .count = count,
                                         .learning_rate = 1e-5f,
                                         .step = ++step});
  }));
  bench.add_bytes("AdamW, reads and writes", 30.0 * static_cast<double>(count), seconds);
  return {};
}

// Beyond any cache; the smaller scales are left out of the bytes.
Status bench_quantize(KernelBench& bench) {
  constexpr int kRows = 4096, kColumns = 8192;
  constexpr size_t kCount = size_t{kRows} * kColumns;
  std::vector<bf16> x(kCount);
  for (size_t i = 0; i < kCount; ++i) x[i] = kernels::to_bf16(static_cast<float>(i % 1021) - 510);
  std::vector<kernels::e4m3> by_row(kCount), by_column(kCount);
  std::vector<kernels::e8m0> row_scales(kCount / 32), column_scales(kCount / 32);
  for (const int block : {kernels::kScaleBlock, kernels::kMicroscaleBlock}) {
    kernels::Quantize arguments{.x = x.data(),
                                .stride = kColumns,
                                .by_row = by_row.data(),
                                .row_scales = row_scales.data(),
                                .rows = kRows,
                                .columns = kColumns,
                                .block = block};
    const auto run = [&] { return kernels::quantize(bench.stream, arguments); };
    bench.add_bytes(fmt::format("quantise 1x{}, reads and writes", block), 3.0 * kCount,
                    TRY(median_seconds(bench.seconds, run)));
    arguments.by_column = by_column.data();
    arguments.column_scales = column_scales.data();
    bench.add_bytes(fmt::format("quantise 1x{} and {}x1, reads and writes", block, block), 4.0 * kCount,
                    TRY(median_seconds(bench.seconds, run)));
  }
  bench.add_bytes("quantise 128x128, reads and writes", 3.0 * kCount, TRY(median_seconds(bench.seconds, [&] {
                    return kernels::quantize_weight(bench.stream, x.data(), kRows, kColumns, by_row.data(),
                                                    row_scales.data());
                  })));
  std::vector<bf16> rounded(kCount);
  bench.add_bytes("round to codes of 1x128, reads and writes", 4.0 * kCount, TRY(median_seconds(bench.seconds, [&] {
                    return kernels::round_to_codes(
                        bench.stream, {.x = x.data(), .out = rounded.data(), .rows = kRows, .columns = kColumns});
                  })));
  return {};
}

Status bench_digest(KernelBench& bench) {
  const std::vector<std::byte> data(size_t{1} << 28, std::byte{1});
  bench.add_bytes("digest, one thread", static_cast<double>(data.size()), TRY(median_seconds(bench.seconds, [&] {
                    return digest_of(data) == Digest{} ? Status::invalid("the digest of something is that of nothing")
                                                       : Status{};
                  })));
  return {};
}

}  // namespace tandem::bench
