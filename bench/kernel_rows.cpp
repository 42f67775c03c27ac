// What goes over rows or arrays once, at the speed of memory: norms, RoPE, SwiGLU, the optimizer, quantising, digests.
#include <fmt/format.h>

#include "base/digest.h"
#include "bench/kernel_bench.h"
#include "kernels/digest.h"
#include "kernels/muon.h"
#include "kernels/optimizer.h"
#include "kernels/quantize.h"
#include "kernels/transformer_ops.h"

namespace tandem::bench {

using kernels::bf16;

Status bench_rows(KernelBench& bench) {
  constexpr int kRows = 16384, kWidth = 1024, kHead = 64;
  constexpr double kCount = double{kRows} * kWidth;
  auto x = filled(size_t{kRows} * 2 * kWidth, kernels::to_bf16(0.5f)), out = filled<bf16>(size_t{kRows} * kWidth);
  const std::vector<bf16> weight(kWidth, kernels::to_bf16(1));
  bench.add_bytes("RMSNorm, reads and writes", 4 * kCount, TRY(median_seconds(bench.seconds, [&] {
                    return kernels::rms_norm(bench.stream, x.data(), weight.data(), 1e-5f, kRows, kWidth, out.data());
                  })));
  bench.add_bytes("SwiGLU, reads and writes", 6 * kCount, TRY(median_seconds(bench.seconds, [&] {
                    return kernels::swiglu(bench.stream, x.data(), kRows, kWidth, out.data());
                  })));
  bench.add_bytes("GeGLU, reads and writes", 6 * kCount, TRY(median_seconds(bench.seconds, [&] {
                    return kernels::geglu(bench.stream, x.data(), kRows, kWidth, out.data());
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
                                                                     .rope_dim = kHead});
                  })));
  return {};
}

// Bytes of a weight: gradient, master and both moments read, all but the gradient written.
template <typename Moment>
Status bench_adamw_of(KernelBench& bench, const char* name, bool with_codes) {
  constexpr int kColumns = 4096;
  const size_t count = size_t{1} << 25;
  auto grad = filled(count, 1.0f), master = filled(count, 1.0f);
  auto first = filled<Moment>(count), second = filled<Moment>(count);
  auto weight = filled<bf16>(count);
  auto codes = filled<kernels::e4m3>(with_codes ? count : 0);
  std::vector<kernels::e8m0> scales(codes.size() / (kernels::kScaleBlock * kernels::kScaleBlock));
  kernels::BasicAdamW<Moment> arguments{.grad = grad.data(),
                                        .master = master.data(),
                                        .first_moment = first.data(),
                                        .second_moment = second.data(),
                                        .weight = weight.data(),
                                        .count = count,
                                        .learning_rate = 1e-5f,
                                        .step = 0};
  if (with_codes) {
    arguments.codes = codes.data();
    arguments.scales = scales.data();
    arguments.columns = kColumns;
  }
  const double seconds = TRY(median_seconds(bench.seconds, [&] {
    ++arguments.step;
    return kernels::adamw(bench.stream, arguments);
  }));
  bench.add_bytes(name, (14.0 + 4 * sizeof(Moment) + (with_codes ? 1 : 0)) * static_cast<double>(count), seconds);
  return {};
}

Status bench_adamw(KernelBench& bench) {
  TRY(bench_adamw_of<float>(bench, "AdamW, reads and writes", false));
  TRY(bench_adamw_of<bf16>(bench, "AdamW with bf16 moments, reads and writes", false));
  return bench_adamw_of<bf16>(bench, "AdamW with bf16 moments and codes of 128x128, reads and writes", true);
}

// Five rounds of three products each; what is between them is not counted.
Status bench_muon(KernelBench& bench) {
  for (const auto& [rows, columns] : {std::pair{576, 1536}, {2048, 2048}}) {
    const size_t count = static_cast<size_t>(rows) * columns;
    auto grad = filled<float>(count), master = filled(count, 1.0f), momentum = filled<float>(count);
    for (size_t i = 0; i < count; ++i) grad[i] = static_cast<float>(i * 37 % 1021) - 510;
    auto weight = filled<bf16>(count);
    auto workspace = filled<std::byte>(kernels::muon_workspace(rows, columns));
    const kernels::Muon arguments{.grad = grad.data(),
                                  .master = master.data(),
                                  .momentum = momentum.data(),
                                  .weight = weight.data(),
                                  .rows = rows,
                                  .columns = columns,
                                  .learning_rate = 1e-5f,
                                  .workspace = workspace.data()};
    const double seconds = TRY(median_seconds(bench.seconds, [&] { return kernels::muon(bench.stream, arguments); }));
    const double shorter = std::min(rows, columns), longer = std::max(rows, columns);
    bench.add_product(fmt::format("Muon {}x{}", rows, columns), 5 * 2 * shorter * shorter * (2 * longer + shorter), 0,
                      seconds);
  }
  return {};
}

// Beyond any cache; the smaller scales are left out of the bytes.
Status bench_quantize(KernelBench& bench) {
  constexpr int kRows = 4096, kColumns = 8192;
  constexpr size_t kCount = size_t{kRows} * kColumns;
  auto x = filled<bf16>(kCount);
  for (size_t i = 0; i < kCount; ++i) x[i] = kernels::to_bf16(static_cast<float>(i % 1021) - 510);
  auto by_row = filled<kernels::e4m3>(kCount), by_column = filled<kernels::e4m3>(kCount);
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
  auto rounded = filled<bf16>(kCount);
  bench.add_bytes("round to codes of 1x128, reads and writes", 4.0 * kCount, TRY(median_seconds(bench.seconds, [&] {
                    return kernels::round_to_codes(
                        bench.stream, {.x = x.data(), .out = rounded.data(), .rows = kRows, .columns = kColumns});
                  })));
  return {};
}

Status bench_digest(KernelBench& bench) {
  const auto data = filled(size_t{1} << 28, std::byte{1});
  const auto something = [](const Digest& digest) {
    return digest == Digest{} ? Status::invalid("the digest of something is that of nothing") : Status{};
  };
  const auto size = static_cast<double>(data.size());
  bench.add_bytes(
      "digest, one thread", size,
      TRY(median_seconds(bench.seconds, [&] { return something(digest_of(std::span(data.data(), data.size()))); })));
  bench.add_bytes("digest, all threads", size, TRY(median_seconds(bench.seconds, [&]() -> Status {
                    return something(TRY(kernels::digest(bench.stream, std::span(data.data(), data.size()))));
                  })));
  return {};
}

}  // namespace tandem::bench
