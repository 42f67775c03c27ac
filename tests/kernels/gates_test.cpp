#include <limits>

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

TEST_P(GatesTest, wrong_arguments_are_named) {
  Stream cpu = stream();
  bf16 x[64] = {};
  EXPECT_EQ(geglu(cpu, x, -1, 32, x).to_string(), "geglu: rows is -1, expected 0 to 2^31");
  EXPECT_EQ(geglu_backward(cpu, x, x, 1, 32, nullptr).to_string(), "geglu_backward: grad_gate_up is null");
}

}  // namespace
}  // namespace tandem::kernels
