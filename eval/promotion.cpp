#include "eval/promotion.h"

#include <fmt/format.h>

#include <boost/math/distributions/binomial.hpp>
#include <boost/math/distributions/students_t.hpp>
#include <cmath>
#include <numbers>

namespace tandem::eval {
namespace {

constexpr double kFewestTimes = 30;
constexpr int kMeasures = 4;

// Clopper and Pearson's interval, which holds for few cases, too.
Interval exact(double part, double cases, double confidence) {
  using Binomial = boost::math::binomial;
  const double wrong = (1 - confidence) / 2;
  return {part / cases, Binomial::find_lower_bound_on_p(cases, part, wrong),
          Binomial::find_upper_bound_on_p(cases, part, wrong)};
}

LogTimes since(const LogTimes& now, const LogTimes& before) {
  return {now.count - before.count, now.sum - before.sum, now.squares - before.squares};
}

// Mean and the square of its standard error.
std::pair<double, double> mean_of(const LogTimes& times) {
  const double mean = times.sum / times.count;
  const double variance = std::max(0.0, (times.squares - times.sum * mean) / (times.count - 1));
  return {mean, variance / times.count};
}

Json interval_json(const std::optional<Interval>& interval, double scale) {
  if (!interval) return nullptr;
  return {{"value", interval->value * scale}, {"low", interval->low * scale}, {"high", interval->high * scale}};
}

std::string lost_streams(const PromotionReading& reading) {
  if (reading.streams_taken_over + reading.streams_cut == 0) return "";
  return fmt::format(
      "; of streams that it had begun the served version went on with {:.0f}, and {:.0f} ended with an error",
      reading.streams_taken_over, reading.streams_cut);
}

}  // namespace

ArmOutcomes ArmOutcomes::since(const ArmOutcomes& before) const {
  return {.answers = answers - before.answers,
          .errors = errors - before.errors,
          .accepted = accepted - before.accepted,
          .rejected = rejected - before.rejected,
          .first_token = eval::since(first_token, before.first_token),
          .per_token = eval::since(per_token, before.per_token)};
}

bool ArmOutcomes::is_after(const ArmOutcomes& before) const {
  return answers >= before.answers && errors >= before.errors && accepted >= before.accepted &&
         rejected >= before.rejected && first_token.count >= before.first_token.count &&
         per_token.count >= before.per_token.count;
}

Result<ArmOutcomes> read_outcomes(const Json& json) {
  ArmOutcomes out;
  bool whole = json.is_object();
  const auto number = [&](const Json& object, const char* key, double& value) {
    const auto found = object.is_object() ? object.find(key) : object.end();
    whole = whole && object.is_object() && found != object.end() && found->is_number();
    if (whole) value = found->get<double>();
    // Sums of logarithms may be below 0.
    whole = whole && std::isfinite(value) && (value >= 0 || key == std::string_view("sum"));
  };
  const auto times = [&](const char* key, LogTimes& value) {
    const auto found = whole ? json.find(key) : json.end();
    whole = whole && found != json.end();
    if (!whole) return;
    number(*found, "count", value.count);
    if (whole) number(*found, "sum", value.sum);
    if (whole) number(*found, "squares", value.squares);
  };
  number(json, "answers", out.answers);
  if (whole) number(json, "errors", out.errors);
  if (whole) number(json, "accepted", out.accepted);
  if (whole) number(json, "rejected", out.rejected);
  times("log_first_token_seconds", out.first_token);
  times("log_seconds_per_token", out.per_token);
  if (!whole) return fail(Status::invalid("the server's counts of a version are not whole"));
  return out;
}

std::optional<Interval> difference_of_shares(double before, double before_cases, double after, double after_cases,
                                             double confidence) {
  if (after_cases <= 0) return std::nullopt;
  const Interval b = exact(after, after_cases, confidence);
  if (before_cases <= 0) return b;
  const Interval a = exact(before, before_cases, confidence);
  const double value = b.value - a.value;
  return Interval{value, value - std::hypot(b.value - b.low, a.high - a.value),
                  value + std::hypot(b.high - b.value, a.value - a.low)};
}

std::optional<Interval> ratio_of_times(const LogTimes& before, const LogTimes& after, double confidence) {
  if (before.count < kFewestTimes || after.count < kFewestTimes) return std::nullopt;
  const auto [mean_before, square_before] = mean_of(before);
  const auto [mean_after, square_after] = mean_of(after);
  const double value = mean_after - mean_before;
  const double square = square_before + square_after;
  if (square == 0) return Interval{std::exp(value), std::exp(value), std::exp(value)};
  const double freedom =
      square * square /
      (square_before * square_before / (before.count - 1) + square_after * square_after / (after.count - 1));
  const double half =
      boost::math::quantile(boost::math::students_t(freedom), 1 - (1 - confidence) / 2) * std::sqrt(square);
  return Interval{std::exp(value), std::exp(value - half), std::exp(value + half)};
}

double PromotionTrial::cases_here(const PromotionReading& reading) const {
  const auto here = reading.candidate.since(candidate_first_);
  return here.answers + here.errors;
}

PromotionTrial::Measures PromotionTrial::measure(const PromotionReading& reading, double confidence) const {
  const auto before = reading.current.since(current_first_);
  const auto after = reading.candidate.since(candidate_first_);
  Measures m;
  m.errors = difference_of_shares(before.errors, before.answers + before.errors, after.errors,
                                  after.answers + after.errors, confidence);
  if (shadow()) return m;
  m.first_token = ratio_of_times(before.first_token, after.first_token, confidence);
  m.per_token = ratio_of_times(before.per_token, after.per_token, confidence);
  // Without feedback on the served version there is nothing to fall behind.
  if (before.accepted + before.rejected > 0) {
    m.acceptance = difference_of_shares(before.accepted, before.accepted + before.rejected, after.accepted,
                                        after.accepted + after.rejected, confidence);
  }
  return m;
}

std::optional<std::string> PromotionTrial::too_bad(const Measures& m) const {
  const auto points = [](const Interval& i) {
    return fmt::format("{:+.1f} points ({:+.1f} to {:+.1f})", 100 * i.value, 100 * i.low, 100 * i.high);
  };
  const auto times = [](const Interval& i) {
    return fmt::format("{:.2f} times ({:.2f} to {:.2f})", i.value, i.low, i.high);
  };
  if (m.errors && 100 * m.errors->low > terms_.max_error_points)
    return fmt::format("errors: {}, and {} are allowed", points(*m.errors), terms_.max_error_points);
  if (m.first_token && m.first_token->low > terms_.max_slowdown)
    return fmt::format("seconds to the first token: {} those of the version that is served, and {} are allowed",
                       times(*m.first_token), terms_.max_slowdown);
  if (m.per_token && m.per_token->low > terms_.max_slowdown)
    return fmt::format("seconds per token: {} those of the version that is served, and {} are allowed",
                       times(*m.per_token), terms_.max_slowdown);
  if (m.acceptance && 100 * m.acceptance->high < -terms_.max_acceptance_points)
    return fmt::format("accepted answers: {}, and -{} are allowed", points(*m.acceptance),
                       terms_.max_acceptance_points);
  return std::nullopt;
}

PromotionStep PromotionTrial::step(const PromotionReading& reading, Time now) {
  using Kind = PromotionStep::Kind;
  const auto begin_share = [&]() -> PromotionStep {
    since_ = now;
    candidate_first_ = reading.candidate;
    next_look_ = kFirstLook;
    return {Kind::kShare, share(), shadow(),
            fmt::format("{}{} % of the sessions", shadow() ? "copies of the requests of " : "", 100 * share())};
  };
  if (!reading.failed.empty())
    return {Kind::kBack, 0, false, "the candidate's engine has failed: " + reading.failed + lost_streams(reading)};
  if (!begun_) {
    begun_ = true;
    current_first_ = reading.current;
    return begin_share();
  }
  if (!reading.current.is_after(current_first_) || !reading.candidate.is_after(candidate_first_)) {
    current_first_ = reading.current;
    return begin_share();
  }
  const double cases = cases_here(reading);
  const double seconds = to_seconds(now - since_);
  const bool enough = cases >= terms_.answers && seconds >= terms_.seconds;
  if (cases >= next_look_ || enough) {
    while (next_look_ <= cases) next_look_ *= 2;
    // The sum of 1 / k^2 is pi^2 / 6: all looks together take no more than their whole.
    ++looks_;
    const double wrong = (1 - terms_.confidence) * 6 / (std::numbers::pi * std::numbers::pi) / looks_ / looks_;
    if (auto why = too_bad(measure(reading, 1 - wrong / kMeasures)))
      return {Kind::kBack, 0, false, *why + lost_streams(reading)};
  }
  if (enough) {
    if (stage_ + 1 == terms_.stages())
      return {Kind::kPromote, 1, false,
              fmt::format("{:.0f} answers at 100 % of the sessions, none of the limits broken", cases)};
    ++stage_;
    return begin_share();
  }
  if (seconds > terms_.limit_seconds) {
    return {Kind::kUndecided, 0, false,
            fmt::format("{:.0f} of {:.0f} answers came in {:.0f} s at {} % of the sessions: too few to judge by", cases,
                        terms_.answers, seconds, 100 * share())};
  }
  return {};
}

Json PromotionTrial::figures(const PromotionReading& reading, Time now) const {
  const auto m = measure(reading, terms_.confidence);
  return {{"share", share()},
          {"shadow", shadow()},
          {"seconds", to_seconds(now - since_)},
          {"answers", cases_here(reading)},
          {"errors", reading.candidate.since(candidate_first_).errors},
          {"streams_taken_over", reading.streams_taken_over},
          {"streams_cut", reading.streams_cut},
          {"answers_beside", reading.current.since(current_first_).answers},
          {"error_points", interval_json(m.errors, 100)},
          {"first_token_ratio", interval_json(m.first_token, 1)},
          {"per_token_ratio", interval_json(m.per_token, 1)},
          {"acceptance_points", interval_json(m.acceptance, 100)}};
}

}  // namespace tandem::eval
