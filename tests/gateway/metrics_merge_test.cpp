#include "gateway/metrics_merge.h"

#include <gtest/gtest.h>

#include <vector>

namespace tandem::gateway {
namespace {

TEST(MetricsMerge, each_family_stands_once_with_the_samples_of_all_pages) {
  const std::vector<MetricsPage> pages = {
      {"", "# HELP door Doors.\n# TYPE door gauge\ndoor 1\n"},
      {"a",
       "# HELP t Time.\n# TYPE t histogram\nt_bucket{le=\"1\"} 2\nt_sum 3\n# HELP n N.\n# TYPE n counter\nn{} 4\n"},
      {"b\"c", "# HELP n N.\n# TYPE n counter\nn 5\n# HELP t Time.\n# TYPE t histogram\nt_bucket{le=\"1\"} 6\n"},
      {"", ""}};
  EXPECT_EQ(merge_metrics(pages),
            "# HELP door Doors.\n# TYPE door gauge\ndoor 1\n"
            "# HELP t Time.\n# TYPE t histogram\nt_bucket{process=\"a\",le=\"1\"} 2\nt_sum{process=\"a\"} 3\n"
            "t_bucket{process=\"b\\\"c\",le=\"1\"} 6\n"
            "# HELP n N.\n# TYPE n counter\nn{process=\"a\"} 4\nn{process=\"b\\\"c\"} 5\n");
}

TEST(MetricsMerge, what_is_no_sample_is_left_out) {
  const std::vector<MetricsPage> pages = {{"a", "\n# a comment\nword\n{x=\"y\"} 1\nm 1\n"}};
  EXPECT_EQ(merge_metrics(pages), "m{process=\"a\"} 1\n");
}

}  // namespace
}  // namespace tandem::gateway
