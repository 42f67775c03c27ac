#include "archive/choice.h"

#include "archive/data_set.h"
#include "tests/archive/runs.h"

namespace tandem::archive {
namespace {

Json episode(double reward, const char* split, Json step = {}, Json versions = Json::array({2, 3})) {
  Json object = {{"reward", reward}, {"split", split}};
  object["trained_step"] = std::move(step);
  object["versions"] = std::move(versions);
  return object;
}

TEST(EpisodeChoiceTest, ranges_are_read_with_and_without_ends) {
  EXPECT_EQ(step_range("4-9")->first, 4u);
  EXPECT_EQ(step_range("4-9")->last, 9u);
  EXPECT_EQ(step_range("7")->first, 7u);
  EXPECT_EQ(step_range("7")->last, 7u);
  EXPECT_EQ(step_range("-3")->first, 0u);
  EXPECT_GT(step_range("3-")->last, uint64_t{1} << 60);
  for (const char* text : {"", "-", "9-4", "a-b", "1-2-3", "99999999999999999999999"})
    EXPECT_EQ(step_range(text).error().code(), Code::kInvalid) << text;
}

TEST(EpisodeChoiceTest, each_wish_leaves_out_what_does_not_meet_it) {
  const Json one = episode(0.5, "train", 4), heldout = episode(1, "heldout_wordings");
  EXPECT_TRUE(matches({}, one));
  EXPECT_TRUE(matches({.least_reward = 0.5}, one));
  EXPECT_FALSE(matches({.least_reward = 0.6}, one));
  EXPECT_FALSE(matches({.least_reward = 0}, Json{{"reward", Json()}, {"split", "train"}})) << "without a reward";
  EXPECT_TRUE(matches({.trained = StepRange{4, 4}}, one));
  EXPECT_FALSE(matches({.trained = StepRange{5, 9}}, one));
  EXPECT_FALSE(matches({.trained = StepRange{0, 9}}, heldout)) << "trained by no step";
  EXPECT_TRUE(matches({.sampled = StepRange{2, 2}}, one));
  EXPECT_FALSE(matches({.sampled = StepRange{3, 9}}, one)) << "what it began with counts";
  EXPECT_TRUE(matches({.split = "train"}, one));
  EXPECT_FALSE(matches({.split = "train"}, heldout));
  EXPECT_TRUE(matches({.split = "heldout"}, heldout));
}

TEST(EpisodeChoiceTest, of_each_group_the_first_of_the_best_is_chosen) {
  RecordedRun run;
  run.play(dashboard::learns);  // in training every second episode has a reward of 1
  const auto plan = [&]() -> Result<rollout::RunPlan> { return run.plan(); };
  EpisodeChoice choice{.split = "train"};
  const auto all = choose_episodes(run.dir(), plan, choice);
  ASSERT_TRUE(all) << all.error().to_string();
  choice.best_of_group = true;
  const auto best = choose_episodes(run.dir(), plan, choice);
  ASSERT_TRUE(best) << best.error().to_string();
  EXPECT_EQ(all->size(), best->size() * 4) << "groups of four";
  for (const uint64_t number : *best) {
    EXPECT_EQ(number % 2, 1u) << "a reward of 1";
    EXPECT_TRUE(all->contains(number));
  }
}

TEST(DataFormatTest, names_are_read_and_parquet_says_the_way_there) {
  EXPECT_EQ(*data_format_named("openai"), DataFormat::kOpenAi);
  EXPECT_EQ(*data_format_named("atif"), DataFormat::kAtif);
  EXPECT_NE(data_format_named("atef").error().to_string().find("did you mean \"atif\""), std::string::npos);
  EXPECT_NE(data_format_named("parquet").error().to_string().find("to_parquet"), std::string::npos);
}

}  // namespace
}  // namespace tandem::archive
