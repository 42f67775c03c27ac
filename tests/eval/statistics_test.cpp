// The statistics beside SciPy's and NumPy's (tests/golden/make_eval_statistics.py), and how often they are wrong.
#include "eval/statistics.h"

#include <gtest/gtest.h>

#include "base/file.h"
#include "base/json.h"
#include "base/random.h"

namespace tandem::eval {
namespace {

Json golden() {
  const auto text = read_file(fs::path(TANDEM_SOURCE_DIR) / "tests/golden/eval_statistics.json");
  return parse_json(text.value_or("")).value_or(Json::object());
}

TEST(EvalStatistics, pass_at_k_is_the_share_of_draws_of_k_samples_with_one_that_passed) {
  const Json all = golden();
  ASSERT_GE(all.at("pass_at_k").size(), 5u);
  for (const Json& one : all.at("pass_at_k")) {
    EXPECT_NEAR(pass_at_k(one.at("samples").get<int>(), one.at("passed").get<int>(), one.at("k").get<int>()),
                one.at("value").get<double>(), 1e-12)
        << one.dump();
  }
}

TEST(EvalStatistics, mcnemar_is_the_exact_test_of_scipy) {
  for (const Json& one : golden().at("mcnemar")) {
    EXPECT_NEAR(mcnemar(one.at("lost").get<int>(), one.at("won").get<int>()).p_value, one.at("p").get<double>(), 1e-9)
        << one.dump();
  }
  EXPECT_EQ(mcnemar(0, 0).p_value, 1);
}

TEST(EvalStatistics, quantiles_are_those_of_numpy) {
  const Json all = golden().at("quantile");
  for (const Json& one : all.at("at")) {
    const auto value = quantile(all.at("values").get<std::vector<double>>(), one.at("share").get<double>());
    ASSERT_TRUE(value);
    EXPECT_NEAR(*value, one.at("value").get<double>(), 1e-12);
  }
  EXPECT_FALSE(quantile({}, 0.5));
}

TEST(EvalStatistics, intervals_and_the_least_detectable_loss_are_those_of_a_bootstrap_by_numpy) {
  const Json cases = golden().at("differences");
  ASSERT_EQ(cases.size(), 8u);
  for (const Json& one : cases) {
    std::vector<PairedRate> tasks;
    for (size_t i = 0; i < one.at("before").size(); ++i) {
      tasks.push_back(
          {one.at("before")[i].get<double>(), one.at("after")[i].get<double>(), one.at("weights")[i].get<double>()});
    }
    const auto found = paired_difference(tasks, one.at("confidence").get<double>());
    ASSERT_TRUE(found);
    // Means lie on a grid; at the ends of an interval, noise may choose the next point of it.
    const double tolerance = 0.25 / static_cast<double>(tasks.size()) + 0.004;
    EXPECT_NEAR(found->points, one.at("points").get<double>(), 1e-12);
    EXPECT_NEAR(found->low, one.at("interval")[0].get<double>(), tolerance);
    EXPECT_NEAR(found->high, one.at("interval")[1].get<double>(), tolerance);
    if (tasks.size() >= 40) {
      EXPECT_NEAR(found->least_detectable, one.at("detectable").get<double>(), 0.01);
    }
  }
}

TEST(EvalStatistics, tasks_that_did_not_change_have_no_interval_but_a_loss_that_would_have_been_missed) {
  const std::vector<PairedRate> same(20, PairedRate{0.5, 0.5});
  const auto found = paired_difference(same, 0.95);
  ASSERT_TRUE(found);
  EXPECT_EQ(found->points, 0);
  EXPECT_EQ(found->high, 0);
  EXPECT_GT(found->least_detectable, 0.1);
  EXPECT_LT(found->least_detectable, 0.4);
  EXPECT_FALSE(paired_difference({}, 0.95));
}

// At most a few in a hundred of nights without any difference are called worse, also with few tasks.
TEST(EvalStatistics, equal_nights_are_seldom_called_worse_and_worse_ones_mostly) {
  Random random(11);
  const auto share_called_worse = [&](int tasks, double now_by) {
    constexpr int kNights = 200;
    int worse = 0;
    for (int night = 0; night < kNights; ++night) {
      std::vector<PairedRate> rates;
      for (int task = 0; task < tasks; ++task) {
        const double p = 0.2 + 0.6 * random.uniform();
        int was = 0, now = 0;
        for (int sample = 0; sample < 4; ++sample) {
          was += random.chance(p);
          now += random.chance(p + now_by);
        }
        rates.push_back({was / 4.0, now / 4.0});
      }
      worse += paired_difference(rates, 0.95)->high < 0;
    }
    return static_cast<double>(worse) / kNights;
  };
  EXPECT_LE(share_called_worse(10, 0), 0.06);
  EXPECT_LE(share_called_worse(40, 0), 0.055);
  EXPECT_GE(share_called_worse(40, -0.2), 0.8);
}

}  // namespace
}  // namespace tandem::eval
