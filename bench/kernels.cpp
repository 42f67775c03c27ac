// Benchmarks of kernels.
#include <fmt/format.h>
#include <fmt/ranges.h>

#include <array>
#include <cstdio>

#include "bench/kernel_bench.h"

namespace tandem::bench {

namespace {

struct Operation {
  const char* name;
  Status (*run)(KernelBench&);
};
constexpr std::array kOperations = {
    Operation{"gemm", bench_gemm},       Operation{"experts", bench_experts},   Operation{"attention", bench_attention},
    Operation{"lm_head", bench_lm_head}, Operation{"rows", bench_rows},         Operation{"adamw", bench_adamw},
    Operation{"muon", bench_muon},       Operation{"quantize", bench_quantize}, Operation{"digest", bench_digest},
};

Result<ProductShape> parse_shape(const std::string& text) {
  ProductShape shape;
  int read = 0;
  const int found = std::sscanf(text.c_str(), "%7dx%7dx%7d%n", &shape.m, &shape.n, &shape.k, &read);
  const double most = 1 << 24;
  if (found != 3 || read != static_cast<int>(text.size()) || shape.m < 1 || shape.n < 1 || shape.k < 2 ||
      shape.k % 2 != 0 || static_cast<double>(shape.n) * shape.k > 64 * most ||
      static_cast<double>(shape.m) * std::max(shape.n, shape.k) > 64 * most) {
    return fail(Status::invalid(fmt::format("\"{}\" is no shape of a product", text))
                    .hint("M x N x K with an even K and matrices of at most 2^30 elements, such as 1x49152x576"));
  }
  return shape;
}

}  // namespace

void KernelBench::add_product(std::string name, double flops, double bytes, double seconds) {
  const bool memory = bytes > 16e6 && flops / limits.flops < bytes / limits.bytes;
  figures.push_back({std::move(name), flops / seconds / 1e9, "GFLOP/s",
                     (memory ? limits.bytes * flops / bytes : limits.flops) / 1e9, memory ? "memory" : "arithmetic"});
}

void KernelBench::add_bytes(std::string name, double bytes, double seconds) {
  figures.push_back({std::move(name), bytes / seconds / 1e9, "GB/s", limits.bytes / 1e9, "memory"});
}

std::vector<std::string> kernel_operations() {
  std::vector<std::string> names;
  for (const Operation& operation : kOperations) names.emplace_back(operation.name);
  return names;
}

Result<std::vector<Figure>> bench_kernels(const Settings& settings) {
  ProductShape shape;
  if (!settings.shape.empty()) {
    if (settings.operation != "gemm") {
      return fail(Status::invalid("a shape goes with the operation gemm").hint("--op gemm --shape " + settings.shape));
    }
    shape = TRY(parse_shape(settings.shape));
  }
  auto stream = TRY(kernels::Stream::cpu(settings.threads, settings.isa));
  const Limits limits = measure_limits(stream);
  std::vector<Figure> figures = {{"peak of products, in registers", limits.flops / 1e9, "GFLOP/s", 0, ""},
                                 {"read bandwidth", limits.bytes / 1e9, "GB/s", 0, ""}};
  KernelBench bench{stream, limits, settings.seconds / 4, shape, figures};
  for (const Operation& operation : kOperations) {
    if (settings.operation.empty() || settings.operation == operation.name) TRY(operation.run(bench));
  }
  return figures;
}

}  // namespace tandem::bench
