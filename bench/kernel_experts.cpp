// Mixtures of experts: a product by groups of rows, and the whole way through the experts and back.
#include <fmt/format.h>

#include "base/random.h"
#include "bench/kernel_bench.h"
#include "kernels/experts.h"
#include "kernels/gemm.h"
#include "kernels/transformer_ops.h"

namespace tandem::bench {

using kernels::bf16;

namespace {

constexpr int kExperts = 64, kTopK = 8, kWidth = 1024, kExpertWidth = 512;

// Tokens whose experts are drawn at random, and all that lies between their states and what the experts make of them.
class Mixture {
 public:
  explicit Mixture(int tokens)
      : tokens_(tokens),
        pairs_(tokens * kTopK),
        x_(static_cast<size_t>(tokens) * kWidth, kernels::to_bf16(1)),
        permuted_(static_cast<size_t>(pairs_) * kWidth),
        gate_up_(static_cast<size_t>(pairs_) * 2 * kExpertWidth),
        gated_(static_cast<size_t>(pairs_) * kExpertWidth),
        said_(permuted_.size()),
        logits_(static_cast<size_t>(tokens) * kExperts),
        weights_(pairs_),
        ids_(pairs_),
        places_(pairs_),
        offsets_(kExperts + 1) {
    Random random(1);
    for (float& logit : logits_) logit = static_cast<float>(random.normal());
  }

  Status route(kernels::Stream& stream) {
    TRY(kernels::route(stream, {.logits = logits_.data(),
                                .ids = ids_.data(),
                                .weights = weights_.data(),
                                .rows = tokens_,
                                .experts = kExperts,
                                .top_k = kTopK}));
    return kernels::group_by_expert(stream, {.ids = ids_.data(),
                                             .offsets = offsets_.data(),
                                             .places = places_.data(),
                                             .rows = tokens_,
                                             .experts = kExperts,
                                             .top_k = kTopK});
  }
  Status product(kernels::Stream& stream, const std::vector<bf16>& a, int k, const Buffer<bf16>& b, int n,
                 std::vector<bf16>& out) {
    return kernels::grouped_gemm(stream, {.a = a.data(),
                                          .a_stride = static_cast<size_t>(k),
                                          .offsets = offsets_.data(),
                                          .b = b.data(),
                                          .out = out.data(),
                                          .out_stride = static_cast<size_t>(n),
                                          .groups = kExperts,
                                          .m = pairs_,
                                          .n = n,
                                          .k = k});
  }
  // One product alone, as wide as an expert.
  Status multiply(kernels::Stream& stream, const Buffer<bf16>& b) {
    return product(stream, permuted_, kWidth, b, kExpertWidth, gated_);
  }
  Status run(kernels::Stream& stream, const Buffer<bf16>& up, const Buffer<bf16>& down) {
    TRY(route(stream));
    TRY(kernels::permute(stream, kernels::Permute{.x = x_.data(),
                                                  .places = places_.data(),
                                                  .out = permuted_.data(),
                                                  .rows = tokens_,
                                                  .top_k = kTopK,
                                                  .width = kWidth}));
    TRY(product(stream, permuted_, kWidth, up, 2 * kExpertWidth, gate_up_));
    TRY(kernels::swiglu(stream, gate_up_.data(), pairs_, kExpertWidth, gated_.data()));
    TRY(product(stream, gated_, kExpertWidth, down, kWidth, said_));
    return kernels::combine(stream, kernels::Combine{.y = said_.data(),
                                                     .places = places_.data(),
                                                     .weights = weights_.data(),
                                                     .residual = x_.data(),
                                                     .out = x_.data(),
                                                     .rows = tokens_,
                                                     .top_k = kTopK,
                                                     .width = kWidth});
  }
  int pairs() const { return pairs_; }
  int active() const {
    int active = 0;
    for (int expert = 0; expert < kExperts; ++expert) active += offsets_[expert + 1] > offsets_[expert];
    return active;
  }

 private:
  const int tokens_, pairs_;
  std::vector<bf16> x_, permuted_, gate_up_, gated_, said_;
  std::vector<float> logits_, weights_;
  std::vector<int32_t> ids_, places_, offsets_;
};

}  // namespace

// Prefill, and decode, which reads most weights for few rows.
Status bench_experts(KernelBench& bench) {
  const auto up = filled(kExperts * kernels::packed_size(2 * kExpertWidth, kWidth), kernels::to_bf16(0.001f));
  const auto down = filled(kExperts * kernels::packed_size(kWidth, kExpertWidth), kernels::to_bf16(0.001f));
  for (const int tokens : {512, 16}) {
    Mixture mixture(tokens);
    TRY(mixture.route(bench.stream));
    const double one = 2.0 * kExpertWidth * kWidth;  // FLOP of a row, and bytes of an expert, of one of three products
    const auto name = [&](const char* what) {
      return fmt::format("{}, {} tokens, {} of {} experts, {}x{}", what, tokens, kTopK, kExperts, kExpertWidth, kWidth);
    };
    bench.add_product(name("grouped gemm"), one * mixture.pairs(), one * mixture.active(),
                      TRY(median_seconds(bench.seconds, [&] { return mixture.multiply(bench.stream, down); })));
    bench.add_product(name("mixture"), 3 * one * mixture.pairs(), 3 * one * mixture.active(),
                      TRY(median_seconds(bench.seconds, [&] { return mixture.run(bench.stream, up, down); })));
  }
  return {};
}

}  // namespace tandem::bench
