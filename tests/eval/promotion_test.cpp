#include "eval/promotion.h"

#include <gmock/gmock.h>

#include "base/random.h"

namespace tandem::eval {
namespace {

using namespace std::chrono_literals;
using testing::HasSubstr;
using Kind = PromotionStep::Kind;

// Two versions that answer as they are told, one answer after the other.
class Traffic {
 public:
  struct Version {
    double errors = 0, seconds = 0.1, accepted = 0.7;
  };
  Traffic(Version current, Version candidate, uint64_t seed)
      : current_(current), candidate_(candidate), random_(seed) {}

  void answers(int count, double share) {
    for (int i = 0; i < count; ++i) {
      const bool tried = random_.uniform() < share;
      answer(tried ? candidate_ : current_, tried ? reading.candidate : reading.current);
    }
  }
  PromotionReading reading;

 private:
  void answer(const Version& version, ArmOutcomes& arm) {
    if (random_.uniform() < version.errors) {
      ++arm.errors;
      return;
    }
    ++arm.answers;
    const double log = std::log(version.seconds) + random_.uniform() - 0.5;
    for (auto* const times : {&arm.first_token, &arm.per_token}) {
      times->count += 1;
      times->sum += log;
      times->squares += log * log;
    }
    ++(random_.uniform() < version.accepted ? arm.accepted : arm.rejected);
  }
  const Version current_, candidate_;
  Random random_;
};

struct TrialEnd {
  PromotionStep last;
  std::vector<double> shares;
};

TrialEnd run(Traffic traffic, const PromotionTerms& terms, int answers_at_once = 20) {
  PromotionTrial trial(terms);
  TrialEnd outcome;
  Time now{};
  double share = 0;
  for (int i = 0; i < 100'000; ++i, now += 1s) {
    outcome.last = trial.step(traffic.reading, now);
    if (outcome.last.kind == Kind::kShare) outcome.shares.push_back(share = outcome.last.share);
    if (outcome.last.kind != Kind::kShare && outcome.last.kind != Kind::kWait) return outcome;
    traffic.answers(answers_at_once, share);
  }
  ADD_FAILURE() << "no end";
  return outcome;
}

constexpr Traffic::Version kSound{};

TEST(PromotionFigures, the_difference_of_shares_has_the_interval_of_zou_and_donner) {
  // 56 of 70 and 48 of 80, with the beta quantiles of scipy 1.17.
  const auto interval = *difference_of_shares(48, 80, 56, 70, 0.95);
  EXPECT_NEAR(interval.value, 0.2, 1e-9);
  EXPECT_NEAR(interval.low, 0.043886878207775565, 1e-9);
  EXPECT_NEAR(interval.high, 0.34417102320815784, 1e-9);
  EXPECT_FALSE(difference_of_shares(1, 2, 0, 0, 0.95)) << "no answers say nothing";
  EXPECT_NEAR(difference_of_shares(0, 0, 5, 10, 0.95)->value, 0.5, 1e-9) << "alone where there is nothing beside it";
}

TEST(PromotionTrial, a_sound_candidate_goes_through_all_shares_and_is_promoted) {
  const auto outcome = run(Traffic(kSound, kSound, 1), {});
  EXPECT_EQ(outcome.last.kind, Kind::kPromote) << outcome.last.says;
  EXPECT_THAT(outcome.shares, testing::ElementsAre(0.01, 0.1, 0.5, 1));
}

TEST(PromotionTrial, sound_candidates_are_seldom_sent_back_though_they_are_looked_at_often) {
  int back = 0;
  const Traffic::Version sometimes_wrong{.errors = 0.02};
  for (uint64_t seed = 0; seed < 400; ++seed) {
    const auto outcome = run(Traffic(sometimes_wrong, sometimes_wrong, seed),
                             {.shares = {0.1, 0.5, 1}, .max_error_points = 0, .max_slowdown = 1});
    back += outcome.last.kind == Kind::kBack;
  }
  EXPECT_LE(back, 20) << "of 400 at a confidence of 0.95, though nothing more than equal was allowed";
}

TEST(PromotionTrial, one_that_fails_is_back_after_a_few_answers) {
  for (uint64_t seed = 0; seed < 50; ++seed) {
    const auto outcome = run(Traffic(kSound, {.errors = 1}, seed), {.shares = {0.1, 1}}, 10);
    ASSERT_EQ(outcome.last.kind, Kind::kBack);
    EXPECT_THAT(outcome.last.says, HasSubstr("errors: +100.0 points"));
    EXPECT_THAT(outcome.shares, testing::ElementsAre(0.1));
  }
}

TEST(PromotionTrial, one_that_is_slower_or_less_accepted_is_sent_back_with_the_figures) {
  const auto slow = run(Traffic(kSound, {.seconds = 0.2}, 3), {});
  EXPECT_EQ(slow.last.kind, Kind::kBack);
  EXPECT_THAT(slow.last.says, HasSubstr("seconds to the first token: "));
  const auto disliked = run(Traffic(kSound, {.accepted = 0.3}, 3), {});
  EXPECT_EQ(disliked.last.kind, Kind::kBack);
  EXPECT_THAT(disliked.last.says, HasSubstr("accepted answers: -"));
}

TEST(PromotionTrial, too_few_answers_decide_nothing) {
  const auto outcome = run(Traffic(kSound, kSound, 4), {.limit_seconds = 100}, 1);
  EXPECT_EQ(outcome.last.kind, Kind::kUndecided);
  EXPECT_THAT(outcome.last.says, HasSubstr("of 200 answers came in 101 s at 1 % of the sessions"));
}

TEST(PromotionTrial, a_candidate_whose_engine_fails_is_back_at_once) {
  PromotionTrial trial({});
  PromotionReading reading;
  EXPECT_EQ(trial.step(reading, Time{}).kind, Kind::kShare);
  reading.failed = "out of memory";
  reading.streams_taken_over = 3;
  reading.streams_cut = 1;
  const auto step = trial.step(reading, Time{} + 1s);
  EXPECT_EQ(step.kind, Kind::kBack);
  EXPECT_THAT(step.says, HasSubstr("out of memory"));
  EXPECT_THAT(step.says, HasSubstr("the served version went on with 3, and 1 ended with an error"));
}

TEST(PromotionTrial, counts_that_fall_are_of_another_life_and_the_share_begins_again) {
  PromotionTrial trial({.shares = {0.5, 1}, .answers = 10, .seconds = 0});
  PromotionReading reading;
  reading.current.answers = 50;
  reading.candidate.answers = 5;
  EXPECT_EQ(trial.step(reading, Time{}).kind, Kind::kShare);
  reading.candidate.answers = 2;
  EXPECT_EQ(trial.step(reading, Time{} + 1s).kind, Kind::kShare) << "the same share, from there";
  EXPECT_EQ(trial.share(), 0.5);
  reading.candidate.answers = 11;
  EXPECT_EQ(trial.step(reading, Time{} + 2s).kind, Kind::kWait) << "9 since";
}

TEST(PromotionTrial, goes_on_at_the_share_of_an_earlier_command) {
  PromotionTrial trial({}, 2);
  const auto step = trial.step({}, Time{});
  EXPECT_EQ(step.kind, Kind::kShare);
  EXPECT_EQ(step.share, 0.5);
}

TEST(PromotionFigures, counts_that_are_not_whole_are_refused) {
  const Json times = {{"count", 1}, {"sum", 0.5}, {"squares", 0.25}};
  Json whole = {{"answers", 3},  {"errors", 1},  {"log_first_token_seconds", times}, {"log_seconds_per_token", times},
                {"accepted", 2}, {"rejected", 0}};
  EXPECT_EQ(read_outcomes(whole)->answers, 3);
  EXPECT_EQ(read_outcomes(whole)->per_token.squares, 0.25);
  for (const auto* const key : {"answers", "errors", "log_first_token_seconds", "log_seconds_per_token", "accepted"}) {
    Json cut = whole;
    cut.erase(key);
    EXPECT_FALSE(read_outcomes(cut)) << key;
    cut[key] = "3";
    EXPECT_FALSE(read_outcomes(cut)) << key;
  }
  EXPECT_FALSE(read_outcomes(Json::array()));
}

}  // namespace
}  // namespace tandem::eval
