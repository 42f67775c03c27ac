#include "dashboard/behaviour_charts.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace tandem::dashboard {
namespace {

using testing::HasSubstr;
using testing::Not;

TEST(BehaviourCharts, of_lines_without_figures_are_none) {
  EXPECT_EQ(behaviour_charts({}, 8), "");
  EXPECT_EQ(behaviour_charts({{{"step", 1}},
                              Json(),
                              {{"step", 2}, {"behaviour", 3}},
                              {{"step", 3}, {"behaviour", {{"kinds", {{"bug", "x"}}}}}}},
                             8),
            "");
}

TEST(BehaviourCharts, have_a_curve_for_each_kind_and_leave_out_what_never_happens) {
  std::vector<Json> steps;
  for (int i = 1; i <= 3; ++i) {
    steps.push_back({{"step", i},
                     {"behaviour",
                      {{"kinds",
                        {{"<bug>", {{"calls_per_turn", i}, {"edits_undone", 0}, {"parallel_share", 0.5}}},
                         {"rename", {{"calls_per_turn", 1}, {"edits_undone", 0}}}}}}}});
  }
  const std::string html = behaviour_charts(steps, 8);
  EXPECT_THAT(html, HasSubstr("Calls of a message of the model (mean of 8 steps)"));
  EXPECT_THAT(html, HasSubstr("Share of calls that ran in parallel"));
  EXPECT_THAT(html, HasSubstr("&lt;bug&gt;"));
  EXPECT_THAT(html, HasSubstr("rename"));
  EXPECT_THAT(html, Not(HasSubstr("undone")));
}

}  // namespace
}  // namespace tandem::dashboard
