// Whether a new version of a served model may have more of the requests: by how often it fails, how fast it answers and
// how often its answers were of use, beside those of the version that is served. Pure.
//
// A trial goes through shares of the requests, if wished after copies of some. At each, both versions are looked at as
// the candidate's answers double; all looks of a trial together take a sound candidate for a bad one with at most 1 -
// confidence (each look and each measure has its part of it, after Bonferroni).
#pragma once

#include <algorithm>
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "base/clock.h"
#include "base/json.h"

namespace tandem::eval {

// Natural logarithms of seconds, as sums.
struct LogTimes {
  double count = 0, sum = 0, squares = 0;
};

// Statistics of one version's answers.
struct ArmOutcomes {
  double answers = 0, errors = 0, accepted = 0, rejected = 0;
  LogTimes first_token, per_token;
  // The difference to `before`, an earlier reading of the same counters.
  ArmOutcomes since(const ArmOutcomes& before) const;
  // Counts never fall, unless they are of another life of the version.
  bool is_after(const ArmOutcomes& before) const;
};
// "outcomes" of GET /promotion. kInvalid for anything else.
Result<ArmOutcomes> read_outcomes(const Json& json);

struct Interval {
  double value = 0, low = 0, high = 0;
};
// after - before of two shares: the exact interval of each (Clopper and Pearson 1934), put together by squares and a
// sum (Zou and Donner, Statistics in Medicine 27, 2008). Without cases before, `after` alone; without any after,
// nothing.
std::optional<Interval> difference_of_shares(double before, double before_cases, double after, double after_cases,
                                             double confidence);
// after / before of two geometric means, by Welch's interval of the difference of mean logarithms. Nothing below 30
// times each, where that does not hold yet.
std::optional<Interval> ratio_of_times(const LogTimes& before, const LogTimes& after, double confidence);

struct PromotionTerms {
  double shadow = 0;  // of the sessions, whose requests it gets copies of before it answers any; 0: none
  std::vector<double> shares = {0.01, 0.1, 0.5, 1};  // rising, the last is 1
  double answers = 200;                              // of the candidate at each share, at least
  double seconds = 60;                               // at each share, at least
  double limit_seconds = 86400;                      // for its answers at one share
  double max_error_points = 1;                       // more errors in a hundred answers than the version that is served
  double max_slowdown = 1.25;                        // of seconds to the first token, and per token
  double max_acceptance_points = 5;                  // fewer accepted answers in a hundred that were judged
  double confidence = 0.95;
  size_t stages() const { return shares.size() + (shadow > 0); }
};

struct PromotionReading {
  ArmOutcomes current, candidate;
  std::string failed;  // why the candidate's engine has failed, or empty
  // Streams that the candidate had begun and lost: the served version went on with them, or they ended with an error.
  double streams_taken_over = 0, streams_cut = 0;
};

struct PromotionStep {
  enum class Kind : uint8_t { kWait, kShare, kPromote, kBack, kUndecided };
  Kind kind = Kind::kWait;
  double share = 0;  // of kShare
  bool shadow = false;
  std::string says;  // why, with the figures
};

class PromotionTrial {
 public:
  // Goes on at stage `stage` of terms.stages(), which an earlier command had come to; in place of the last one at the
  // one before it, where the served version still answers beside the candidate.
  PromotionTrial(PromotionTerms terms, size_t stage = 0)
      : terms_(std::move(terms)), stage_(std::min(stage, terms_.stages() < 2 ? 0 : terms_.stages() - 2)) {}

  // The first step is a share. After kPromote, kBack and kUndecided there is none.
  PromotionStep step(const PromotionReading& reading, Time now);
  size_t stage() const { return stage_; }
  double share() const { return shadow() ? terms_.shadow : terms_.shares[stage_ - (terms_.shadow > 0)]; }
  // Its answers go nowhere, and it makes no other wait: only its errors say something.
  bool shadow() const { return terms_.shadow > 0 && stage_ == 0; }
  // Current figures at this share, with their intervals.
  Json figures(const PromotionReading& reading, Time now) const;

 private:
  struct Measures {
    std::optional<Interval> errors, first_token, per_token, acceptance;
  };
  static constexpr double kFirstLook = 8;
  Measures measure(const PromotionReading& reading, double confidence) const;
  // Why the candidate must go, where a look says so.
  std::optional<std::string> too_bad(const Measures& measures) const;
  double cases_here(const PromotionReading& reading) const;

  const PromotionTerms terms_;
  size_t stage_;
  bool begun_ = false;
  Time since_{};
  ArmOutcomes current_first_;      // as the trial began
  ArmOutcomes candidate_first_;    // as this share began
  double next_look_ = kFirstLook;  // answers of the candidate at this share
  int looks_ = 0;
};

}  // namespace tandem::eval
