#include "trainer/learn/preference_loss.h"

#include <gtest/gtest.h>

#include <cmath>
#include <fstream>

#include "base/json.h"

namespace tandem::trainer {
namespace {

// Written out by token in Python's float64, with gradients by differences: tests/golden/make_preferences.py.
TEST(PreferenceLosses, have_the_values_and_gradients_of_their_formulas) {
  std::ifstream lines(TANDEM_SOURCE_DIR "/tests/golden/preferences.jsonl");
  int count = 0;
  for (std::string line; std::getline(lines, line); ++count) {
    const Json json = *parse_json(line);
    SCOPED_TRACE(line.substr(0, 80));
    const auto numbers = [&](const char* key) { return json[key].get<std::vector<double>>(); };
    const PreferenceLoss loss{.kind = *preference_kind(json["loss"].get<std::string>()),
                              .beta = json["beta"].get<double>(),
                              .label_smoothing = json["label_smoothing"].get<double>(),
                              .sft = json["sft"].get<double>()};
    const auto got = preference_loss(numbers("sums"), numbers("reference"), numbers("tokens"), loss);
    EXPECT_NEAR(got.loss, json["value"].get<double>(), 1e-10 * (1 + std::abs(got.loss)));
    const auto expected = numbers("gradient");
    ASSERT_EQ(got.gradients.size(), expected.size());
    for (size_t i = 0; i < expected.size(); ++i)
      EXPECT_NEAR(got.gradients[i], expected[i], 1e-6 * (1 + std::abs(expected[i]))) << "answer " << i;
    EXPECT_NEAR(got.margin, got.chosen_reward - got.rejected_reward, 1e-12);
  }
  EXPECT_EQ(count, 24);
}

// The model that a training starts from prefers nothing yet: half of the pairs count as right.
TEST(PreferenceLosses, begin_at_ln_2_and_at_an_accuracy_of_one_half) {
  const std::vector<double> sums = {-3, -5, -2, -9}, tokens = {2, 4, 1, 7};
  const auto got = preference_loss(sums, sums, tokens, {});
  EXPECT_NEAR(got.loss, std::log(2.0), 1e-15);
  EXPECT_EQ(got.accuracy, 0.5);
  EXPECT_EQ(got.margin, 0);
  for (size_t i = 0; i < sums.size(); ++i) EXPECT_EQ(got.gradients[i], (i % 2 == 0 ? -1 : 1) * 0.1 / 2 / 2);
}

TEST(PreferenceLosses, stay_finite_however_far_apart_the_answers_are) {
  const std::vector<double> sums = {-1e6, -1, -1, -1e6}, reference = {-1, -1e6, -1e6, -1}, tokens = {1, 1, 1, 1};
  for (const char* name : {"sigmoid", "hinge", "ipo"}) {
    const auto got = preference_loss(sums, reference, tokens, {.kind = *preference_kind(name), .beta = 1});
    EXPECT_TRUE(std::isfinite(got.loss)) << name;
    for (const double gradient : got.gradients) EXPECT_TRUE(std::isfinite(gradient)) << name;
    EXPECT_EQ(got.accuracy, 0.5) << name;
  }
  const auto unknown = preference_kind("dpo");
  ASSERT_FALSE(unknown);
  EXPECT_NE(unknown.error().message().find("sigmoid, ipo and hinge"), std::string::npos);
}

}  // namespace
}  // namespace tandem::trainer
