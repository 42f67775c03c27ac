#include "model/weight_format.h"

#include <gtest/gtest.h>

#include <cstring>

#include "kernels/reference/quantize.h"
#include "model/panels.h"
#include "model/weights.h"

namespace tandem::model {
namespace {

using kernels::bf16;

// No size is a whole number of blocks.
ModelConfig odd_config() {
  ModelConfig config;
  config.family = "llama";
  config.layers = 2;
  config.width = 192;
  config.heads = 3;
  config.kv_heads = 1;
  config.head_size = 64;
  config.mlp_width = 200;
  config.vocabulary = 90;
  config.max_positions = 64;
  config.tied_embeddings = true;
  config.dtype = DType::kBF16;
  return config;
}

Weights random_weights(kernels::Stream& stream, WeightFormat format) {
  auto weights = std::move(*Weights::create(odd_config(), true, format));
  randomise(weights, 1);
  EXPECT_TRUE(weights.pack(stream));
  return weights;
}

std::vector<bf16> packed(kernels::Stream& stream, const std::vector<bf16>& values, const Parameter& p) {
  std::vector<bf16> panels(kernels::packed_size(p.rows, p.columns));
  EXPECT_TRUE(kernels::pack(stream, values.data(), p.rows, p.columns, panels.data()));
  return panels;
}

class LowPrecision : public testing::TestWithParam<WeightFormat> {};
INSTANTIATE_TEST_SUITE_P(Formats, LowPrecision, testing::Values(WeightFormat::kFp8, WeightFormat::kMxfp8),
                         [](const auto& info) { return to_string(info.param); });

TEST_P(LowPrecision, panels_hold_what_the_codes_of_the_definition_stand_for) {
  auto stream = std::move(*kernels::Stream::cpu(2));
  const Weights weights = random_weights(stream, GetParam());
  const int rows = GetParam() == WeightFormat::kFp8 ? 128 : 1, columns = GetParam() == WeightFormat::kFp8 ? 128 : 32;
  int quantized = 0;
  for (size_t i = 0; i < weights.layout().parameters.size(); ++i) {
    const int index = static_cast<int>(i);
    const Parameter& p = weights.layout().parameters[i];
    if (!p.matrix) continue;
    std::vector<bf16> values(Panels(weights).values(index), Panels(weights).values(index) + p.elements());
    if (index != weights.layout().embedding) {
      ++quantized;
      EXPECT_EQ(weights.format_of(index), GetParam()) << p.name;
      const auto codes = kernels::reference::quantize(values, p.rows, p.columns, rows, columns);
      const size_t across = kernels::scale_blocks(p.columns, columns);
      for (size_t k = 0; k < values.size(); ++k)
        values[k] = kernels::reference::expand(codes.codes[k],
                                               codes.scales[k / p.columns / rows * across + k % p.columns / columns]);
    } else {
      EXPECT_EQ(weights.format_of(index), WeightFormat::kBf16);
    }
    const auto expected = packed(stream, values, p);
    ASSERT_EQ(std::memcmp(Panels(weights).packed(index).panels, expected.data(), expected.size() * sizeof(bf16)), 0)
        << p.name;
  }
  EXPECT_EQ(quantized, 2 * 4);
}

TEST_P(LowPrecision, the_receiver_of_half_the_bytes_computes_with_the_panels_of_the_sender) {
  auto stream = std::move(*kernels::Stream::cpu(1));
  const Weights sent = random_weights(stream, GetParam());
  auto received = std::move(*Weights::create(odd_config(), true, GetParam()));
  ASSERT_EQ(received.wire().size(), sent.wire().size());
  EXPECT_LT(sent.wire().size(), sent.flat().size_bytes() * 6 / 10);
  std::memcpy(received.wire().data(), sent.wire().data(), sent.wire().size());
  ASSERT_TRUE(received.pack_received(stream, received.wire()));
  for (size_t i = 0; i < sent.layout().parameters.size(); ++i) {
    const int index = static_cast<int>(i);
    const Parameter& p = sent.layout().parameters[i];
    if (sent.format_of(index) == WeightFormat::kBf16) {
      ASSERT_EQ(std::memcmp(Panels(received).values(index), Panels(sent).values(index), p.elements() * sizeof(bf16)), 0)
          << p.name;
    }
    if (!p.matrix) continue;
    const size_t bytes = kernels::packed_size(p.rows, p.columns) * sizeof(bf16);
    ASSERT_EQ(std::memcmp(Panels(received).packed(index).panels, Panels(sent).packed(index).panels, bytes), 0)
        << p.name;
    const size_t transposed = kernels::packed_size(p.columns, p.rows) * sizeof(bf16);
    ASSERT_EQ(std::memcmp(Panels(received).packed_transposed(index), Panels(sent).packed_transposed(index), transposed),
              0)
        << p.name;
  }
}

TEST_P(LowPrecision, who_only_samples_keeps_codes_and_computes_the_bits_of_who_trains) {
  auto stream = std::move(*kernels::Stream::cpu(2));
  const Weights training = random_weights(stream, GetParam());
  auto sampling = std::move(*Weights::create(odd_config(), false, GetParam()));
  std::memcpy(sampling.wire().data(), training.wire().data(), training.wire().size());
  ASSERT_TRUE(sampling.pack_received(stream, sampling.wire()));
  for (size_t i = 0; i < training.layout().parameters.size(); ++i) {
    const int index = static_cast<int>(i), rows = 3;
    const Parameter& p = training.layout().parameters[i];
    if (training.format_of(index) == WeightFormat::kBf16) continue;
    EXPECT_NE(Panels(sampling).packed(index).codes, nullptr) << p.name;
    EXPECT_EQ(Panels(sampling).packed(index).panels, nullptr) << p.name;
    std::vector<bf16> x;
    for (int k = 0; k < rows * p.columns; ++k) x.push_back(kernels::to_bf16(static_cast<float>(k % 17) - 8));
    const auto product = [&](const Weights& weights) {
      std::vector<bf16> out(static_cast<size_t>(rows) * p.rows);
      EXPECT_TRUE(kernels::gemm(stream, {.a = x.data(),
                                         .a_stride = static_cast<size_t>(p.columns),
                                         .b = Panels(weights).packed(index),
                                         .out = out.data(),
                                         .out_stride = static_cast<size_t>(p.rows),
                                         .m = rows,
                                         .n = p.rows,
                                         .k = p.columns}));
      return out;
    };
    EXPECT_EQ(product(sampling), product(training)) << p.name;
  }
}

TEST_P(LowPrecision, a_matrix_with_an_infinity_is_kept_in_bf16) {
  auto stream = std::move(*kernels::Stream::cpu(1));
  auto weights = std::move(*Weights::create(odd_config(), false, GetParam()));
  randomise(weights, 3);
  const int parameter = weights.layout().layers[0].qkv;
  weights.flat()[weights.layout().parameters[parameter].offset] = {0x7f80};
  ASSERT_TRUE(weights.pack(stream));
  EXPECT_EQ(Panels(weights).packed(parameter).codes, nullptr);
  EXPECT_NE(Panels(weights).packed(parameter).panels, nullptr);
  EXPECT_NE(Panels(weights).packed(weights.layout().layers[0].output).codes, nullptr);
  weights.flat()[weights.layout().parameters[parameter].offset] = {0};
  ASSERT_TRUE(weights.pack(stream));
  EXPECT_NE(Panels(weights).packed(parameter).codes, nullptr) << "the next version is finite again";
}

TEST(WeightFormats, have_names_and_others_are_refused) {
  for (const WeightFormat format : {WeightFormat::kBf16, WeightFormat::kFp8, WeightFormat::kMxfp8})
    EXPECT_EQ(*weight_format_named(to_string(format)), format);
  EXPECT_EQ(weight_format_named("int4").error().message(),
            "\"int4\" is not a format of weights; expected one of bf16, fp8, mxfp8");
}

TEST(WeightFormats, in_bf16_what_is_sent_is_what_is_stored) {
  auto stream = std::move(*kernels::Stream::cpu(1));
  const Weights weights = random_weights(stream, WeightFormat::kBf16);
  EXPECT_EQ(weights.wire().data(), std::as_bytes(weights.flat()).data());
  EXPECT_EQ(weights.wire().size(), weights.flat().size_bytes());
}

}  // namespace
}  // namespace tandem::model
