#include "dashboard/loss_charts.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "dashboard/run_files.h"

namespace tandem::dashboard {
namespace {

using testing::HasSubstr;
using testing::Not;

Json step(int number, Json more) {
  more["step"] = number;
  return more;
}

TEST(LossCharts, of_a_loss_without_numbers_of_its_own_are_none) {
  EXPECT_EQ(loss_charts({}), "");
  EXPECT_EQ(loss_charts({step(1, {{"loss", 1.0}}), Json(), step(2, {{"loss_metrics", 3}, {"algorithms", "x"}})}), "");
}

TEST(LossCharts, have_every_number_by_its_name_and_the_loss_of_each_part) {
  std::vector<Json> steps;
  for (int i = 1; i <= 3; ++i) {
    steps.push_back(
        step(i, {{"loss_metrics", {{"demonstration_loss", 2.5 / i}, {"<own>", i}, {"words", "no number"}}},
                 {"algorithms", {{"set,rename", {{"loss", 0.5}}}, {"others", {{"loss", i}}}, {"odd", 1}}}}));
  }
  const std::string html = loss_charts(steps);
  EXPECT_THAT(html, HasSubstr("Negative log-likelihood of demonstrations, nats a token"));
  EXPECT_THAT(html, HasSubstr("&lt;own&gt;, of the loss"));
  EXPECT_THAT(html, Not(HasSubstr("words")));
  EXPECT_THAT(html, HasSubstr("Loss by algorithm"));
  EXPECT_THAT(html, HasSubstr("set,rename"));
  EXPECT_THAT(html, Not(HasSubstr("odd")));
}

TEST(LossCharts, of_very_many_numbers_are_some) {
  Json many = Json::object();
  for (int i = 0; i < 1000; ++i) many["n" + std::to_string(i)] = i;
  EXPECT_LT(loss_charts({step(1, {{"loss_metrics", many}})}).size(), 100'000u);
}

}  // namespace
}  // namespace tandem::dashboard
