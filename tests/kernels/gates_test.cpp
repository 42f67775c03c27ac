#include <limits>

#include "kernels/fused_ops.h"
#include "kernels/reference/transformer_ops.h"
#include "kernels/transformer_ops.h"
#include "tests/kernels/support.h"

namespace tandem::kernels {
namespace {

class GatesTest : public EachIsa {};
FOR_EACH_ISA(GatesTest);

TEST_P(GatesTest, swiglu_matches_the_formula_and_its_gradient) {
  Stream cpu = stream();
  const int rows = 9, width = 40;
  const auto gate_up = random_bf16(rows * 2 * width, 4, 3), grad = random_bf16(rows * width, 5);
  std::vector<bf16> out(rows * width), gradient(rows * 2 * width);
  ASSERT_TRUE(swiglu(cpu, gate_up.data(), rows, width, out.data()));
  ASSERT_TRUE(swiglu_backward(cpu, gate_up.data(), grad.data(), rows, width, gradient.data()));
  EXPECT_LT(relative_error(out, reference::gated(reference::kSilu, gate_up, width)), 0x1p-8);
  EXPECT_LT(relative_error(gradient, reference::gated_backward(reference::kSilu, gate_up, grad, width)), 0x1p-8);
}

TEST_P(GatesTest, geglu_matches_the_formula_and_its_gradient) {
  Stream cpu = stream(3);
  const int rows = 37, width = 41;
  const auto gate_up = random_bf16(rows * 2 * width, 4, 3), grad = random_bf16(rows * width, 5);
  std::vector<bf16> out(rows * width), gradient(rows * 2 * width);
  ASSERT_TRUE(geglu(cpu, gate_up.data(), rows, width, out.data()));
  ASSERT_TRUE(geglu_backward(cpu, gate_up.data(), grad.data(), rows, width, gradient.data()));
  const auto exact = reference::gated(reference::kGeluTanh, gate_up, width);
  EXPECT_LT(relative_error(out, exact), 0x1p-8);
  EXPECT_LT(relative_error(gradient, reference::gated_backward(reference::kGeluTanh, gate_up, grad, width)), 0x1p-8);
  std::vector<float> in_float(gate_up.size()), out_float(out.size());
  for (size_t i = 0; i < gate_up.size(); ++i) in_float[i] = to_float(gate_up[i]);
  ASSERT_TRUE(geglu(cpu, in_float.data(), rows, width, out_float.data()));
  EXPECT_LT(relative_error(out_float, exact), 1e-6);
}

// The gradients of reference/ by differences of reference/ itself: steps are powers of two, so that inputs stay exact.
TEST(GatesReference, gradients_are_the_limits_of_differences) {
  const size_t width = 24;
  for (const auto& gate : {reference::kSilu, reference::kGeluTanh}) {
    std::vector<bf16> gate_up, grad;
    for (size_t i = 0; i < 2 * width; ++i) gate_up.push_back(to_bf16(static_cast<float>(i % 13) * 0.5f - 3));
    for (size_t i = 0; i < width; ++i) grad.push_back(to_bf16(static_cast<float>(i % 5) - 2));
    const auto value = [&](const std::vector<bf16>& at) {
      const auto out = reference::gated(gate, at, width);
      double total = 0;
      for (size_t i = 0; i < width; ++i) total += out[i] * to_float(grad[i]);
      return total;
    };
    const auto gradients = reference::gated_backward(gate, gate_up, grad, width);
    for (size_t i = 0; i < gate_up.size(); ++i) {
      auto above = gate_up, below = gate_up;
      above[i] = to_bf16(to_float(gate_up[i]) + 0x1p-6f);
      below[i] = to_bf16(to_float(gate_up[i]) - 0x1p-6f);
      EXPECT_NEAR((value(above) - value(below)) / 0x1p-5, gradients[i], 2e-4) << i;
    }
  }
}

TEST_P(GatesTest, geglu_far_out_is_its_gate_or_nothing_and_nan_stays) {
  Stream cpu = stream();
  const float huge = 3e38f, nan = std::numeric_limits<float>::quiet_NaN();
  std::vector<bf16> gate_up, out(4), gradient(8);
  for (const float value : {huge, -huge, 100.0f, nan, 1.0f, 1.0f, 1.0f, 1.0f}) gate_up.push_back(to_bf16(value));
  const std::vector<bf16> grad(4, to_bf16(1));
  ASSERT_TRUE(geglu(cpu, gate_up.data(), 1, 4, out.data()));
  ASSERT_TRUE(geglu_backward(cpu, gate_up.data(), grad.data(), 1, 4, gradient.data()));
  EXPECT_EQ(out[0], gate_up[0]);
  EXPECT_EQ(to_float(out[1]), 0);
  EXPECT_EQ(to_float(out[2]), 100);
  EXPECT_TRUE(std::isnan(to_float(out[3])));
  EXPECT_EQ(to_float(gradient[0]), 1);
  EXPECT_EQ(to_float(gradient[1]), 0);
  EXPECT_TRUE(std::isnan(to_float(gradient[3])));
}

// Codes and scales of `rows`, quantised by themselves.
struct Codes {
  std::vector<e4m3> codes;
  std::vector<e8m0> scales;
  Codes(int rows, int width, int block)
      : codes(static_cast<size_t>(rows) * width), scales(rows * scale_blocks(width, block)) {}
  static Codes of(Stream& stream, const std::vector<bf16>& x, int rows, int width, int block) {
    Codes result(rows, width, block);
    EXPECT_TRUE(quantize(stream, {.x = x.data(),
                                  .stride = static_cast<size_t>(width),
                                  .by_row = result.codes.data(),
                                  .row_scales = result.scales.data(),
                                  .rows = rows,
                                  .columns = width,
                                  .block = block}));
    return result;
  }
  friend bool operator==(const Codes&, const Codes&) = default;
};

TEST_P(GatesTest, norms_that_add_and_quantise_have_the_bits_of_their_parts) {
  Stream one = stream(1), three = stream(3);
  const int rows = 35;
  for (const int width : {16, 100, 576}) {
    const auto x = random_bf16(rows * width, 1), y = random_bf16(rows * width, 2), weight = random_bf16(width, 3);
    auto sums = x;
    std::vector<bf16> normed(x.size());
    ASSERT_TRUE(add(one, y.data(), sums.size(), sums.data()));
    ASSERT_TRUE(rms_norm(one, sums.data(), weight.data(), 1e-5f, rows, width, normed.data()));
    for (const int block : {kScaleBlock, kMicroscaleBlock}) {
      auto residual = x;
      std::vector<bf16> out(x.size());
      Codes codes(rows, width, block);
      NormQuantize arguments{.x = residual.data(),
                             .residual = y.data(),
                             .weight = weight.data(),
                             .out = out.data(),
                             .codes = codes.codes.data(),
                             .scales = codes.scales.data(),
                             .epsilon = 1e-5f,
                             .rows = rows,
                             .width = width,
                             .block = block};
      ASSERT_TRUE(norm_quantize(three, arguments));
      EXPECT_TRUE(same_bits(residual.data(), sums.data(), sums.size()));
      EXPECT_TRUE(same_bits(out.data(), normed.data(), normed.size()));
      const Codes expected = Codes::of(one, normed, rows, width, block);
      EXPECT_EQ(codes, expected);
      arguments.residual = nullptr;  // the sum is there already
      arguments.out = nullptr;
      codes = Codes(rows, width, block);
      arguments.codes = codes.codes.data();
      arguments.scales = codes.scales.data();
      ASSERT_TRUE(norm_quantize(one, arguments));
      EXPECT_EQ(codes, expected);
    }
  }
}

TEST_P(GatesTest, gates_that_quantise_have_the_bits_of_their_parts) {
  Stream one = stream(1), three = stream(3);
  const int rows = 35, width = 200;
  const auto gate_up = random_bf16(rows * 2 * width, 1, 2);
  for (const auto activation : {GateActivation::kSilu, GateActivation::kGeluTanh}) {
    std::vector<bf16> parts(rows * width), out(rows * width);
    const auto gate = activation == GateActivation::kSilu ? swiglu(one, gate_up.data(), rows, width, parts.data())
                                                          : geglu(one, gate_up.data(), rows, width, parts.data());
    ASSERT_TRUE(gate);
    for (const int block : {kScaleBlock, kMicroscaleBlock}) {
      Codes codes(rows, width, block);
      ASSERT_TRUE(gate_quantize(three, {.gate_up = gate_up.data(),
                                        .activation = activation,
                                        .out = out.data(),
                                        .codes = codes.codes.data(),
                                        .scales = codes.scales.data(),
                                        .rows = rows,
                                        .width = width,
                                        .block = block}));
      EXPECT_TRUE(same_bits(out.data(), parts.data(), parts.size()));
      EXPECT_EQ(codes, Codes::of(one, parts, rows, width, block));
    }
  }
}

TEST_P(GatesTest, wrong_arguments_are_named) {
  Stream cpu = stream();
  bf16 x[64] = {}, weight[32] = {};
  e4m3 codes[32];
  EXPECT_EQ(norm_quantize(cpu, {.x = x, .weight = weight, .rows = 1, .width = 32}).to_string(),
            "norm_quantize: neither out nor codes is given");
  EXPECT_EQ(norm_quantize(cpu, {.x = x, .weight = weight, .codes = codes, .rows = 1, .width = 32}).to_string(),
            "norm_quantize: codes and scales go together");
  EXPECT_EQ(gate_quantize(cpu, {.gate_up = x, .out = x, .rows = 1, .width = 32, .block = 64}).to_string(),
            "gate_quantize: block must be 128 or 32");
  EXPECT_EQ(gate_quantize(cpu, {.out = x, .rows = 1, .width = 32}).to_string(), "gate_quantize: gate_up is null");
  EXPECT_EQ(geglu(cpu, x, -1, 32, x).to_string(), "geglu: rows is -1, expected 0 to 2^31");
  EXPECT_EQ(geglu_backward(cpu, x, x, 1, 32, nullptr).to_string(), "geglu_backward: grad_gate_up is null");
}

}  // namespace
}  // namespace tandem::kernels
