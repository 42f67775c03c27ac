#include "bench/measure.h"

#include <fmt/format.h>

#include <array>

#include "base/random.h"
#include "kernels/device_stream.h"

namespace tandem::bench {

Limits measure_limits(kernels::Stream& stream) {
  return {kernels::measure_peak_flops(stream), kernels::measure_read_bandwidth(stream)};
}

Result<Limits> measure_limits(const model::Place& place) {
  if (place.device.on_cpu()) {
    auto stream = TRY(place.host_stream());
    return measure_limits(stream);
  }
  constexpr double kSeconds = 0.3;
  auto stream = TRY(kernels::DeviceStream::open(place.device));
  // An emulated device has no tensor cores: its figures say nothing, and are not to take minutes.
  const int size = place.device.kind == kernels::Device::Kind::kCuda ? 8192 : 128;
  const size_t elements = static_cast<size_t>(size) * size, bytes = elements * 16;
  const auto a = TRY(stream.allocate<kernels::bf16>(elements, "a limit"));
  const auto b = TRY(stream.allocate<kernels::bf16>(elements, "a limit"));
  const auto out = TRY(stream.allocate<kernels::bf16>(elements, "a limit"));
  const auto from = TRY(stream.allocate<std::byte>(bytes, "a limit")),
             to = TRY(stream.allocate<std::byte>(bytes, "a limit"));
  const double product = TRY(median_seconds(kSeconds, [&]() -> Status {
    TRY(stream.run(TandemCudaTensorGemm{.a = kernels::address(a.data()),
                                        .b = kernels::address(b.data()),
                                        .out = kernels::address(out.data()),
                                        .out_stride = size,
                                        .m = size,
                                        .n = size,
                                        .k = size}));
    return stream.wait();
  }));
  const double copy = TRY(median_seconds(kSeconds, [&]() -> Status {
    TRY(stream.copy(to.data(), from.data(), bytes));
    return stream.wait();
  }));
  return Limits{.flops = 2.0 * size * static_cast<double>(elements) / product,
                .bytes = 2 * static_cast<double>(bytes) / copy};
}

namespace {
// SmolLM2-135M; figures do not depend on what the weights are.
model::ModelConfig default_shape() {
  model::ModelConfig config;
  config.family = "llama";
  config.layers = 30;
  config.width = 576;
  config.heads = 9;
  config.kv_heads = 3;
  config.head_size = 64;
  config.mlp_width = 1536;
  config.vocabulary = 49152;
  config.max_positions = 8192;
  config.norm_epsilon = 1e-5;
  config.tied_embeddings = true;
  config.rope.theta = 100000;
  config.dtype = model::DType::kBF16;
  return config;
}
}  // namespace

Result<model::Weights> load_model(const Settings& settings, bool for_training) {
  auto weights = settings.model.empty() ? TRY(model::Weights::create(default_shape(), for_training, settings.weights))
                                        : TRY(model::load_weights(settings.model, for_training, settings.weights));
  if (settings.model.empty()) model::randomise(weights, 1);
  TRY(settings.place().ready(weights));
  return weights;
}

double head_flops(const model::ModelConfig& config) { return 2.0 * config.width * config.vocabulary; }

double body_flops(const model::ModelConfig& config) {
  const double queries = static_cast<double>(config.heads) * config.head_size;
  const double keys = static_cast<double>(config.kv_heads) * config.head_size;
  double attention = 2 * queries + 2 * keys;
  if (const auto& latent = config.latent; latent.rank > 0) {
    const double up = latent.rank * (latent.plain + latent.value) / static_cast<double>(config.width);
    const double from_query = latent.query_rank > 0 ? latent.query_rank * (1 + queries / config.width) : queries;
    attention = from_query + latent.rank + latent.rope_dim + config.heads * (up + latent.value);
  }
  double flops = 0;
  for (int layer = 0; layer < config.layers; ++layer) {
    const auto& experts = config.experts;
    const double mlps = config.has_experts(layer)
                            ? 3.0 * (experts.top_k * experts.width + experts.shared_width) + experts.count
                            : 3.0 * config.mlp_width;
    flops += 2.0 * config.width * (attention + mlps);
  }
  return flops;
}

model::EncoderConfig default_encoder() {
  return {.layers = 6,
          .width = 384,
          .heads = 12,
          .mlp_width = 1536,
          .vocabulary = 30522,
          .positions = 512,
          .types = 2,
          .longest = 256,
          .norm_epsilon = 1e-12f};
}

double token_flops(const model::EncoderConfig& config, int tokens) {
  const double width = config.width;
  return 2.0 * config.layers * width * (4 * width + 2 * config.mlp_width + 2 * tokens);
}

Result<kernels::Stream> stream_of_fp32(int threads) {
  const auto isas = kernels::supported_isas();
  const bool avx512 = std::find(isas.begin(), isas.end(), kernels::Isa::kAvx512) != isas.end();
  return kernels::Stream::cpu(threads, avx512 ? kernels::Isa::kAvx512 : kernels::Isa::kAvx2);
}

std::string made_up_code(size_t bytes) {
  static constexpr std::array kParts = {"read", "write", "token", "count", "index", "page", "state", "value", "node",
                                        "size", "next",  "log",   "batch", "grad",  "row",  "cache", "queue", "time"};
  static constexpr std::array kForms = {
      "  const auto {0}_{1} = {2}({0}, {3});\n", "  if ({0}.{1}() > {3}) return {2};\n",
      "  for (int {0} = 0; {0} < {3}; ++{0}) {1} += {2}[{0}];\n", "// The {0} of each {1}, before {2} has been seen.\n",
      "}}\n\nvoid {0}{1}({2} {3}) {{\n"};
  Random random(1);
  std::string text;
  while (text.size() < bytes) {
    text += fmt::format(fmt::runtime(random.pick(kForms)), random.pick(kParts), random.pick(kParts),
                        std::string(random.pick(kParts)) + random.pick(kParts), random.below(10000));
  }
  return text;
}

}  // namespace tandem::bench
