// Helpers of the kernel benchmarks.
#pragma once

#include <algorithm>
#include <string>

#include "base/buffer.h"
#include "bench/measure.h"

namespace tandem::bench {

// m x n x k of a product.
struct ProductShape {
  int m = 0, n = 0, k = 0;
};

// An array as weights and activations are kept: in huge pages, every one of them touched.
template <typename T>
Buffer<T> filled(size_t count, T value = {}) {
  Buffer<T> buffer(count);
  std::fill(buffer.begin(), buffer.end(), value);
  return buffer;
}

struct KernelBench {
  kernels::Stream& stream;
  const Limits limits;
  const double seconds;      // for each figure, about
  const ProductShape shape;  // to measure alone; of zeros: those that matter
  std::vector<Figure>& figures;

  // A product of so many operations and, unless the caches hold them, bytes that are read: the slower is the limit.
  void add_product(std::string name, double flops, double bytes, double seconds);
  // Work that reads and writes this many bytes.
  void add_bytes(std::string name, double bytes, double seconds);
};

// kernel_products.cpp
Status bench_gemm(KernelBench& bench);
Status bench_attention(KernelBench& bench);
Status bench_lm_head(KernelBench& bench);
// kernel_experts.cpp
Status bench_experts(KernelBench& bench);
// kernel_rows.cpp
Status bench_rows(KernelBench& bench);
Status bench_adamw(KernelBench& bench);
Status bench_muon(KernelBench& bench);
Status bench_quantize(KernelBench& bench);
Status bench_digest(KernelBench& bench);

}  // namespace tandem::bench
