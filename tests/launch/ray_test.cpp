// Submissions to Ray.
#include "launch/ray.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tests/launch/golden.h"

namespace tandem::launch {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;

TEST(RaySubmissions, of_one_run_are_that_of_the_golden_file) {
  const auto text = render_ray(quickstart_job(), {.address = "http://head:8265", .runtime_env = "env.yaml"});
  ASSERT_TRUE(text) << text.error().to_string();
  expect_golden("quickstart.ray.sh", *text);
}

TEST(RaySubmissions, each_run_of_a_sweep_is_a_job_that_says_what_it_takes) {
  const auto submissions = ray_submissions(sweep_job(), {.extra = {"--verbose"}});
  ASSERT_TRUE(submissions);
  ASSERT_EQ(submissions->size(), 4u);
  const RaySubmission& last = submissions->back();
  EXPECT_EQ(last.id, "quickstart-1-3");
  const std::vector<std::string> before(last.words.begin(), last.words.end() - 1);
  EXPECT_THAT(before,
              ElementsAre("job", "submit", "--submission-id", "quickstart-1-3", "--no-wait", "--entrypoint-num-cpus",
                          "8", "--entrypoint-memory", "6442450944", "--verbose", "--", "sh", "-c"));
  EXPECT_THAT(last.words.back(), HasSubstr("--on local --run-dir /data/runs/quickstart-1/learning_rate-3e-5_seed-2 "));
  EXPECT_THAT(last.words.back(), HasSubstr(" trainer.learning_rate=3e-5 run.seed=2"));
}

TEST(RaySubmissions, an_extra_word_that_is_no_option_is_refused) {
  EXPECT_FALSE(ray_submissions(quickstart_job(), {.extra = {"rm"}}));
}

}  // namespace
}  // namespace tandem::launch
