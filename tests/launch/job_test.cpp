// Variants, times and words of a job.
#include "launch/job.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace tandem::launch {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;

std::vector<std::string> names(const std::vector<Variant>& variants) {
  std::vector<std::string> all;
  for (const Variant& variant : variants) all.push_back(variant.name);
  return all;
}

std::string error_of(const std::string& seeds, std::vector<std::string> sweeps) {
  const auto variants = variants_of(seeds, sweeps);
  return variants ? "" : variants.error().to_string();
}

TEST(Variants, without_seeds_and_sweeps_there_is_one_run_and_it_has_no_folder_of_its_own) {
  const auto variants = variants_of("", {});
  ASSERT_TRUE(variants);
  EXPECT_THAT(names(*variants), ElementsAre(""));
  EXPECT_EQ((Job{.run_dir = "/runs/a"}.run_dir_of(variants->front())), "/runs/a");
}

TEST(Variants, seeds_and_sweeps_make_a_product_with_a_folder_for_each_run) {
  const auto variants =
      variants_of("7-8", std::vector<std::string>{"trainer.learning_rate=1e-5,3e-5", "algorithm.name=grpo"});
  ASSERT_TRUE(variants);
  EXPECT_THAT(names(*variants),
              ElementsAre("learning_rate-1e-5_name-grpo_seed-7", "learning_rate-1e-5_name-grpo_seed-8",
                          "learning_rate-3e-5_name-grpo_seed-7", "learning_rate-3e-5_name-grpo_seed-8"));
  EXPECT_THAT(variants->at(2).overrides,
              ElementsAre("trainer.learning_rate=3e-5", "algorithm.name=grpo", "run.seed=7"));
  EXPECT_EQ((Job{.run_dir = "/runs/a"}.run_dir_of(variants->at(2))), "/runs/a/learning_rate-3e-5_name-grpo_seed-7");
}

TEST(Variants, what_is_no_seed_or_no_sweep_is_named_with_the_option) {
  EXPECT_THAT(error_of("4-1", {}), HasSubstr("--seeds \"4-1\""));
  EXPECT_THAT(error_of("x", {}), HasSubstr("--seeds \"x\""));
  EXPECT_THAT(error_of("1-2-3", {}), HasSubstr("--seeds \"1-2-3\""));
  EXPECT_THAT(error_of("1-99999999999999999999", {}), HasSubstr("--seeds"));
  EXPECT_THAT(error_of("", {"trainer.learning_rate"}), HasSubstr("is not KEY=VALUE"));
  EXPECT_THAT(error_of("", {"a=1,,2"}), HasSubstr("empty value"));
  EXPECT_THAT(error_of("", {"a=x/y,x y"}), HasSubstr("would both be called a-x-y"));
}

TEST(Variants, a_job_has_at_most_a_thousand_runs) {
  EXPECT_EQ(error_of("1-1000", {}), "");
  EXPECT_THAT(error_of("1-1001", {}), HasSubstr("at most 1000 runs"));
  EXPECT_THAT(error_of("1-500", {"a=1,2,3"}), HasSubstr("more than 1000 runs"));
  EXPECT_THAT(error_of("0-9223372036854775807", {}), HasSubstr("--seeds"));
}

TEST(SecondsOfTime, are_those_of_sbatch) {
  const std::pair<const char*, int64_t> cases[] = {
      {"30", 1800},     {"30:10", 1810},     {"2:00:00", 7200},      {"1-0", 86400},
      {"1-12", 129600}, {"1-12:30", 131400}, {"1-12:30:05", 131405},
  };
  for (const auto& [text, seconds] : cases) {
    const auto read = seconds_of_time(text);
    ASSERT_TRUE(read) << text;
    EXPECT_EQ(*read, seconds) << text;
  }
  for (const char* text : {"", "0", "x", "1:2:3:4", "1-", "-1", "1-2:3:4:5", "1h", "1:", "9999999999999999999"}) {
    const auto read = seconds_of_time(text);
    ASSERT_FALSE(read) << text;
    EXPECT_EQ(read.error().code(), Code::kInvalid) << text;
  }
}

TEST(QuotedForShell, leaves_plain_words_and_encloses_others) {
  EXPECT_EQ(quoted_for_shell("run.steps=20"), "run.steps=20");
  EXPECT_EQ(quoted_for_shell(""), "''");
  EXPECT_EQ(quoted_for_shell("a b"), "'a b'");
  EXPECT_EQ(quoted_for_shell("it's $HOME"), R"('it'\''s $HOME')");
}

}  // namespace
}  // namespace tandem::launch
