#include "model/encoder.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <cmath>
#include <numeric>

#include "base/random.h"
#include "kernels/encoder_ops.h"
#include "kernels/gemm.h"
#include "kernels/transformer_ops.h"
#include "model/safetensors.h"
#include "model/tensor_numbers.h"

namespace tandem::model {
namespace {

constexpr const char* kEncoderPrefix = "bert.";

// The mean of `rows` rows, divided by its length.
void pool(const float* rows, int count, int width, float* out) {
  std::vector<double> mean(width, 0);
  for (int row = 0; row < count; ++row) {
    for (int i = 0; i < width; ++i) mean[i] += rows[static_cast<size_t>(row) * width + i];
  }
  double squares = 0;
  for (double& value : mean) {
    value /= count;
    squares += value * value;
  }
  const double length = std::max(std::sqrt(squares), 1e-12);
  for (int i = 0; i < width; ++i) out[i] = static_cast<float>(mean[i] / length);
}

}  // namespace

Result<Encoder> Encoder::load(const fs::path& directory, kernels::Stream& stream) {
  const EncoderConfig config = TRY(read_encoder_config(directory));
  const auto checkpoint = TRY(Safetensors::open(directory));
  const auto specs = tensor_specs(config);
  const std::string prefix = checkpoint.tensors().contains(kEncoderPrefix + specs[0].name) ? kEncoderPrefix : "";
  std::vector<std::string> names;
  for (const TensorSpec& spec : specs) names.push_back(prefix + spec.name);
  TRY(checkpoint.require(names));
  Tensors tensors;
  for (const TensorSpec& spec : specs) {
    const TensorView tensor = TRY(checkpoint.get(prefix + spec.name));
    if (tensor.shape != spec.shape) {
      return fail(Status::invalid(fmt::format("tensor {}{} is [{}], expected [{}]", prefix, spec.name,
                                              fmt::join(tensor.shape, ", "), fmt::join(spec.shape, ", "))));
    }
    auto& numbers = tensors[spec.name];
    numbers.resize(static_cast<size_t>(tensor.elements()));
    TRY(copy_numbers(tensor, prefix + spec.name, numbers));
  }
  return build(config, std::move(tensors), stream);
}

Result<Encoder> Encoder::random(const EncoderConfig& config, uint64_t seed, kernels::Stream& stream) {
  Random random(seed);
  Tensors tensors;
  for (const TensorSpec& spec : tensor_specs(config)) {
    const bool norm = spec.name.ends_with("LayerNorm.weight");
    const int64_t count = std::accumulate(spec.shape.begin(), spec.shape.end(), int64_t{1}, std::multiplies<>());
    auto& numbers = tensors[spec.name];
    numbers.assign(static_cast<size_t>(count), norm ? 1.0f : 0.0f);
    if (spec.shape.size() < 2) continue;
    for (float& number : numbers) number = static_cast<float>(0.02 * random.normal());
  }
  return build(config, std::move(tensors), stream);
}

Result<Encoder> Encoder::build(const EncoderConfig& config, Tensors tensors, kernels::Stream& stream) {
  Encoder encoder;
  encoder.config_ = config;
  const auto take = [&](const std::string& name) -> std::vector<float> { return std::move(tensors.at(name)); };
  const auto norm = [&](const std::string& name) -> Norm { return {take(name + ".weight"), take(name + ".bias")}; };
  // Matrices that multiply the same rows become one.
  const auto linear = [&](std::initializer_list<std::string> parts) -> Result<Linear> {
    Linear all;
    std::vector<float> weight;
    for (const std::string& part : parts) {
      const auto rows = take(part + ".weight"), bias = take(part + ".bias");
      weight.insert(weight.end(), rows.begin(), rows.end());
      all.bias.insert(all.bias.end(), bias.begin(), bias.end());
    }
    all.outputs = static_cast<int>(all.bias.size());
    all.inputs = static_cast<int>(weight.size() / all.bias.size());
    all.packed.resize(kernels::packed_size(all.outputs, all.inputs));
    TRY(kernels::pack(stream, weight.data(), all.outputs, all.inputs, all.packed.data()));
    return all;
  };
  encoder.words_ = take("embeddings.word_embeddings.weight");
  encoder.positions_ = take("embeddings.position_embeddings.weight");
  const auto segments = take("embeddings.token_type_embeddings.weight");
  for (size_t i = 0; i < encoder.positions_.size(); ++i) encoder.positions_[i] += segments[i % config.width];
  encoder.norm_ = norm("embeddings.LayerNorm");
  for (int layer = 0; layer < config.layers; ++layer) {
    const auto of = [&](const char* part) { return fmt::format("encoder.layer.{}.{}", layer, part); };
    auto& added = encoder.layers_.emplace_back();
    added.qkv = TRY(linear({of("attention.self.query"), of("attention.self.key"), of("attention.self.value")}));
    added.output = TRY(linear({of("attention.output.dense")}));
    added.up = TRY(linear({of("intermediate.dense")}));
    added.down = TRY(linear({of("output.dense")}));
    added.attention_norm = norm(of("attention.output.LayerNorm"));
    added.mlp_norm = norm(of("output.LayerNorm"));
  }
  return encoder;
}

// One batch on its way through the layers.
class Encoder::Pass {
 public:
  Pass(const Encoder& encoder, kernels::Stream& stream, std::span<const int32_t> ends)
      : encoder_(encoder), config_(encoder.config_), stream_(stream), ends_(ends), rows_(ends.back()) {
    x_.resize(size(config_.width));
    qkv_.resize(size(3 * config_.width));
    context_.resize(size(config_.width));
    inner_.resize(size(config_.mlp_width));
  }

  Status run(std::span<const TokenId> tokens, std::span<const int32_t> positions) {
    TRY(kernels::embed(stream_, encoder_.words_.data(), config_.vocabulary, config_.width, tokens, x_.data()));
    TRY(kernels::embed(stream_, encoder_.positions_.data(), config_.positions, config_.width, positions,
                       context_.data()));
    TRY(kernels::add(stream_, context_.data(), x_.size(), x_.data()));
    TRY(normalise(encoder_.norm_));
    for (const Layer& layer : encoder_.layers_) TRY(run(layer));
    return {};
  }

  const float* row(int row) const { return x_.data() + size(config_.width, row); }

 private:
  size_t size(int width) const { return size(width, rows_); }
  static size_t size(int width, int rows) { return static_cast<size_t>(width) * rows; }

  Status run(const Layer& layer) {
    const auto stride = static_cast<size_t>(3) * config_.width, width = static_cast<size_t>(config_.width);
    TRY(multiply(layer.qkv, x_, nullptr, qkv_));
    TRY(kernels::bidirectional_attention(stream_, {.queries = qkv_.data(),
                                                   .keys = qkv_.data() + width,
                                                   .values = qkv_.data() + 2 * width,
                                                   .stride = stride,
                                                   .out = context_.data(),
                                                   .out_stride = width,
                                                   .ends = ends_,
                                                   .heads = config_.heads,
                                                   .head_size = config_.head_size(),
                                                   .scale = 1 / std::sqrt(static_cast<float>(config_.head_size()))}));
    TRY(multiply(layer.output, context_, x_.data(), x_));
    TRY(normalise(layer.attention_norm));
    TRY(multiply(layer.up, x_, nullptr, inner_));
    TRY(kernels::gelu(stream_, inner_.data(), inner_.size()));
    TRY(multiply(layer.down, inner_, x_.data(), x_));
    return normalise(layer.mlp_norm);
  }

  Status multiply(const Linear& linear, const std::vector<float>& in, const float* residual, std::vector<float>& out) {
    return kernels::gemm(stream_, kernels::BasicGemm<float>{.a = in.data(),
                                                            .a_stride = static_cast<size_t>(linear.inputs),
                                                            .b = linear.packed.data(),
                                                            .bias = linear.bias.data(),
                                                            .residual = residual,
                                                            .out = out.data(),
                                                            .out_stride = static_cast<size_t>(linear.outputs),
                                                            .m = rows_,
                                                            .n = linear.outputs,
                                                            .k = linear.inputs});
  }

  Status normalise(const Norm& norm) {
    return kernels::layer_norm(stream_, {.x = x_.data(),
                                         .weight = norm.weight.data(),
                                         .bias = norm.bias.data(),
                                         .out = x_.data(),
                                         .epsilon = config_.norm_epsilon,
                                         .rows = rows_,
                                         .width = config_.width});
  }

  const Encoder& encoder_;
  const EncoderConfig& config_;
  kernels::Stream& stream_;
  std::span<const int32_t> ends_;
  int rows_;
  std::vector<float> x_, qkv_, context_, inner_;
};

Result<std::vector<float>> Encoder::embed(kernels::Stream& stream, std::span<const std::vector<TokenId>> texts) const {
  std::vector<TokenId> tokens;
  std::vector<int32_t> positions, ends;
  for (const auto& text : texts) {
    if (text.empty()) return fail(Status::invalid("a text without tokens has no embedding"));
    if (text.size() > static_cast<size_t>(config_.positions)) {
      return fail(Status::invalid(
          fmt::format("a text of {} tokens is longer than the {} positions", text.size(), config_.positions)));
    }
    tokens.insert(tokens.end(), text.begin(), text.end());
    for (size_t i = 0; i < text.size(); ++i) positions.push_back(static_cast<int32_t>(i));
    ends.push_back(static_cast<int32_t>(tokens.size()));
  }
  std::vector<float> out(texts.size() * config_.width);
  if (texts.empty()) return out;
  Pass pass(*this, stream, ends);
  TRY(pass.run(tokens, positions));
  for (size_t i = 0; i < texts.size(); ++i) {
    const auto count = static_cast<int>(texts[i].size());
    pool(pass.row(ends[i] - count), count, config_.width, out.data() + i * config_.width);
  }
  return out;
}

}  // namespace tandem::model
