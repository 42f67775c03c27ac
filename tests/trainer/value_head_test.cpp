#include "trainer/learn/value_head.h"

#include <gtest/gtest.h>
#include <unistd.h>

#include "base/random.h"
#include "model/safetensors.h"

namespace tandem::trainer {
namespace {

TEST(ValueHead, follows_a_linear_function_and_is_written_as_one) {
  auto stream = std::move(*kernels::Stream::cpu(1));
  auto head = std::move(*ValueHead::create(4, 0.05));
  Random random(3);
  const std::vector<double> truth = {0.5, -1, 0.25, 2, 0.75};
  double last = 0;
  for (int64_t number = 1; number <= 400; ++number) {
    std::vector<double> sum(head.elements(), 0);
    last = 0;
    for (int i = 0; i < 16; ++i) {
      std::vector<float> state(4);
      double wanted = truth[4];
      for (size_t k = 0; k < 4; ++k) {
        state[k] = static_cast<float>(random.normal());
        wanted += truth[k] * state[k];
      }
      const double error = head.value(state) - wanted;
      if (number == 1) {
        EXPECT_EQ(head.value(state), 0);
      }
      last += error * error / 16;
      head.add_gradient(state, error / 8, sum);
      // What a state is moved by is the head's own weight.
      std::vector<float> moved(4, 0), up = state;
      head.add_to_state(2, moved);
      up[1] += 1;
      EXPECT_NEAR(moved[1], 2 * (head.value(up) - head.value(state)), 1e-5);
    }
    ASSERT_TRUE(head.step(stream, sum, number));
  }
  EXPECT_LT(last, 1e-3);

  const fs::path folder = fs::path(testing::TempDir()) / ("value-head-" + std::to_string(::getpid()));
  ASSERT_TRUE(make_folder(folder));
  ASSERT_TRUE(head.write(folder));
  const auto file = model::Safetensors::open(folder / "value_head.safetensors");
  ASSERT_TRUE(file.has_value()) << file.error().to_string();
  EXPECT_EQ(file->get("weight")->shape, (std::vector<int64_t>{1, 4}));
  EXPECT_EQ(file->get("bias")->shape, (std::vector<int64_t>{1}));
  fs::remove_all(folder);
}

}  // namespace
}  // namespace tandem::trainer
