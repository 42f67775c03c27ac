#include <fmt/format.h>

#include "bench/measure.h"
#include "kernels/gemm.h"
#include "kernels/optimizer.h"

namespace tandem::bench {

Result<std::vector<Figure>> bench_kernels(const Settings& settings) {
  using kernels::bf16;
  auto stream = TRY(kernels::Stream::cpu(settings.threads));
  const Limits limits = measure_limits(stream);
  std::vector<Figure> figures = {{"peak of products, in registers", limits.flops / 1e9, "GFLOP/s", 0, ""},
                                 {"read bandwidth", limits.bytes / 1e9, "GB/s", 0, ""}};
  struct Shape {
    int m, n, k;
  };
  for (const auto& [m, n, k] : {Shape{512, 3072, 576}, Shape{512, 576, 1536}, Shape{64, 3072, 576},
                                Shape{16, 49152, 576}, Shape{1, 49152, 576}, Shape{2048, 4096, 4096}}) {
    const std::vector<bf16> a(static_cast<size_t>(m) * k, kernels::to_bf16(1)),
        b(kernels::packed_size(n, k), kernels::to_bf16(1));
    std::vector<bf16> out(static_cast<size_t>(m) * n);
    const double seconds = TRY(median_seconds(settings.seconds / 4, [&] {
      return kernels::gemm(stream, {.a = a.data(),
                                    .a_stride = static_cast<size_t>(k),
                                    .b = b.data(),
                                    .out_bf16 = out.data(),
                                    .out_stride = static_cast<size_t>(n),
                                    .m = m,
                                    .n = n,
                                    .k = k});
    }));
    const double flops = 2.0 * m * n * k, bytes = 2.0 * n * k;
    const bool memory = bytes > 32e6 && flops / limits.flops < bytes / limits.bytes;  // smaller ones stay in a cache
    figures.push_back({fmt::format("gemm {}x{}x{}", m, n, k), flops / seconds / 1e9, "GFLOP/s",
                       (memory ? limits.bytes * flops / bytes : limits.flops) / 1e9, memory ? "memory" : "arithmetic"});
  }
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
  return figures;
}

}  // namespace tandem::bench
