// Checkpoints with E4M3 blocks as DeepSeek publishes them, beside what transformers makes of them (make_fp8.py).
#include <fmt/format.h>
#include <unistd.h>

#include <cmath>
#include <cstring>
#include <map>

#include "model/safetensors.h"
#include "tests/model/engine_logprobs.h"

namespace tandem::model {
namespace {

constexpr const char* kName = "llama-fp8";

TEST(Fp8Checkpoint, is_read_as_the_numbers_that_transformers_dequantises_it_to) {
  const auto weights = load_weights(golden_model(kName), false);
  ASSERT_TRUE(weights) << weights.error().to_string();
  const Json expected = expected_of(kName)["weights"];
  size_t compared = 0;
  for (const Parameter& p : weights->layout().parameters) {
    for (const ParameterPart& part : p.parts) {
      if (!expected.contains(part.checkpoint_name)) continue;
      const Json& exact = expected[part.checkpoint_name];
      const auto values = weights->flat().subspan(p.offset + static_cast<size_t>(part.first_row) * p.columns,
                                                  static_cast<size_t>(part.rows) * p.columns);
      ASSERT_EQ(values.size(), exact[0].get<size_t>());
      double sum = 0, dot = 0;
      for (size_t i = 0; i < values.size(); ++i) {
        sum += kernels::to_float(values[i]);
        dot += kernels::to_float(values[i]) * std::cos(static_cast<double>(i));
      }
      // Sums of the same numbers in another order; one number that differs by a bit shows.
      EXPECT_NEAR(sum, exact[1].get<double>(), 1e-9) << part.checkpoint_name;
      EXPECT_NEAR(dot, exact[2].get<double>(), 1e-9) << part.checkpoint_name;
      ++compared;
    }
  }
  EXPECT_EQ(compared, expected.size());
}

TEST(Fp8Checkpoint, is_computed_as_the_bf16_model_that_it_stands_for) {
  auto stream = std::move(*kernels::Stream::cpu(2));
  auto weights = std::move(*load_weights(golden_model(kName), false));
  ASSERT_TRUE(weights.pack(stream));
  const Json expected = expected_of(kName);
  double error = 0;
  size_t count = 0;
  for (const Json& item : expected["cases"]) {
    const auto logprobs = engine_logprobs(stream, weights, item["tokens"].get<std::vector<int32_t>>(), 512);
    for (size_t i = 0; i < logprobs.size(); ++i) error += std::abs(logprobs[i] - item["logprobs"][i].get<double>());
    count += logprobs.size();
  }
  EXPECT_LE(error / static_cast<double>(count), 2 * expected["bf16_error"].get<double>());
}

// As DeepSeek-V3 is published: all projections in blocks, latents' and experts' among them. Scales that are powers of
// two leave the products exact.
TEST(Fp8Checkpoint, of_latent_attention_and_experts_is_read_as_codes_times_scales) {
  const fs::path copy = fs::temp_directory_path() / fmt::format("tandem-fp8-latent-{}", ::getpid());
  fs::copy(golden_model("deepseek-v3"), copy);
  Json config = *parse_json(*read_file(copy / "config.json"));
  config["quantization_config"] =
      *parse_json(R"({"activation_scheme":"dynamic","fmt":"e4m3","quant_method":"fp8","weight_block_size":[128,128]})");
  ASSERT_TRUE(write_file(copy / "config.json", config.dump()));
  const auto checkpoint = std::move(*Safetensors::open(golden_model("deepseek-v3")));
  const float scale = 0.25f;
  std::vector<NamedTensor> tensors;
  std::map<std::string, std::vector<kernels::e4m3>> codes;
  for (const auto& [name, tensor] : checkpoint.tensors()) {
    tensors.push_back({name, tensor});
    if (name.find("_proj") == std::string::npos || !name.ends_with(".weight")) continue;
    std::vector<kernels::e4m3>& of = codes[name];
    for (size_t i = 0; i < tensor.bytes.size(); i += sizeof(kernels::bf16)) {
      kernels::bf16 value;
      std::memcpy(&value, tensor.bytes.data() + i, sizeof value);
      of.push_back(kernels::to_e4m3(kernels::to_float(value) / scale));
    }
    tensors.back().tensor.dtype = DType::kF8E4M3;
    tensors.back().tensor.bytes = std::as_bytes(std::span(of));
    tensors.push_back(
        {name + "_scale_inv", {.dtype = DType::kF32, .shape = {1, 1}, .bytes = std::as_bytes(std::span(&scale, 1))}});
  }
  ASSERT_TRUE(write_safetensors(copy / "model.safetensors", tensors));
  const auto weights = load_weights(copy, false);
  ASSERT_TRUE(weights) << weights.error().to_string();
  size_t compared = 0;
  for (const Parameter& p : weights->layout().parameters) {
    for (const ParameterPart& part : p.parts) {
      const auto of = codes.find(part.checkpoint_name);
      if (of == codes.end()) continue;
      const auto values = weights->flat().subspan(p.offset + static_cast<size_t>(part.first_row) * p.columns,
                                                  static_cast<size_t>(part.rows) * p.columns);
      ASSERT_EQ(values.size(), of->second.size());
      for (size_t i = 0; i < values.size(); ++i)
        ASSERT_EQ(kernels::to_float(values[i]), kernels::to_float(of->second[i]) * scale) << part.checkpoint_name;
      ++compared;
    }
  }
  EXPECT_EQ(compared, codes.size());
  fs::remove_all(copy);
}

TEST(Fp8Checkpoint, without_its_scales_or_with_others_is_refused_by_the_name_of_the_tensor) {
  const fs::path copy = fs::temp_directory_path() / fmt::format("tandem-fp8-{}", ::getpid());
  fs::copy(golden_model(kName), copy);
  const auto checkpoint = std::move(*Safetensors::open(golden_model(kName)));
  const std::string scales = "model.layers.0.mlp.up_proj.weight_scale_inv";
  const auto load_with = [&](const std::optional<std::vector<int64_t>>& shape) {
    std::vector<NamedTensor> tensors;
    for (const auto& [name, tensor] : checkpoint.tensors()) {
      if (name == scales && !shape) continue;
      tensors.push_back({name, tensor});
      if (name == scales) tensors.back().tensor.shape = *shape;
    }
    EXPECT_TRUE(write_safetensors(copy / "model.safetensors", tensors));
    return load_weights(copy, false).error().to_string();
  };
  EXPECT_NE(load_with(std::nullopt).find(scales), std::string::npos);
  EXPECT_NE(load_with(std::vector<int64_t>{4, 1}).find(scales + " is [4, 1], expected [2, 2]"), std::string::npos);
  fs::remove_all(copy);
}

}  // namespace
}  // namespace tandem::model
