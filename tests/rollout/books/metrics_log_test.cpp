#include "rollout/books/metrics_log.h"

#include <gtest/gtest.h>
#include <unistd.h>

namespace tandem::rollout {
namespace {

TEST(MetricsLog, tells_the_steps_without_a_line_and_cuts_a_torn_one) {
  const fs::path path = fs::path(testing::TempDir()) / ("metrics-log-" + std::to_string(::getpid()));
  ASSERT_TRUE(write_file(path, "{\"step\":1}\n{\"step\":2,\"loss\":0.5}\nnothing\n{\"step\":4,\"lo"));
  MetricsLog log(path);
  EXPECT_EQ(log.missing(4), (std::vector<uint64_t>{3, 4}));
  log.append({{"step", 4}});
  log.append({{"step", 3}});
  EXPECT_TRUE(log.missing(4).empty());
  EXPECT_EQ(*read_file(path),
            "{\"step\":1}\n{\"step\":2,\"loss\":0.5}\nnothing\n"
            "{\"format\":2,\"step\":4}\n{\"format\":2,\"step\":3}\n");
  EXPECT_TRUE(MetricsLog(path).missing(4).empty());
  EXPECT_EQ(MetricsLog(path).missing(5), std::vector<uint64_t>{5});
  EXPECT_EQ(MetricsLog(path.string() + "-absent").missing(2).size(), 2u);
  fs::remove(path);
}

}  // namespace
}  // namespace tandem::rollout
