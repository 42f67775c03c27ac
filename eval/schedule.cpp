#include "eval/schedule.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>

namespace tandem::eval {

using rollout::Outcome;

Schedule::Schedule(ScheduleSettings settings) : settings_(std::move(settings)) {
  waiting_.assign(settings_.samples.begin(), settings_.samples.end());
}

std::vector<ScheduleAction> Schedule::step(const ScheduleEvent& event, Time now) {
  Actions actions;
  if (over_) return actions;
  if (std::holds_alternative<ScheduleBegins>(event)) {
    if (settings_.total_time) ends_at_ = now + *settings_.total_time;
  } else if (const auto* sample = std::get_if<SampleEnded>(&event)) {
    ended(*sample, now, actions);
  } else if (const auto* gone = std::get_if<ModelGone>(&event)) {
    stop(ScheduleEnd::kGaveUp, gone->why, actions);
  } else if (std::holds_alternative<ScheduleInterrupted>(event)) {
    stop(ScheduleEnd::kInterrupted, "", actions);
  }
  if (ends_at_ && now >= *ends_at_) stop(ScheduleEnd::kOutOfBudget, "limits.total_seconds were used up", actions);
  start_more(now, actions);
  if (running_.empty() && waiting_.empty() && again_.empty()) {
    over_ = true;
    actions.emplace_back(stopping_.value_or(ScheduleOver{}));
  }
  return actions;
}

void Schedule::ended(const SampleEnded& event, Time now, Actions& actions) {
  if (running_.erase(event.sample) == 0) return;
  tokens_ += static_cast<double>(event.tokens);
  const bool has_verdict = rollout::is_of_policy(event.outcome);
  if (has_verdict || (event.outcome == Outcome::kTimeout && !stopping_)) {
    failures_ = has_verdict ? 0 : failures_;
    actions.emplace_back(KeepSample{event.sample});
  } else if (stopping_) {
    if (stopping_->end != ScheduleEnd::kInterrupted)
      actions.emplace_back(GiveUpSample{event.sample, outcome_of_rest(), stopping_->why});
  } else {
    const int attempts = attempts_[event.sample];
    if (attempts < settings_.attempts) {
      const double doubled = to_seconds(settings_.first_wait) * std::pow(2.0, attempts - 1);
      again_.emplace(now + from_seconds(std::min(doubled, to_seconds(settings_.longest_wait))), event.sample);
    } else {
      actions.emplace_back(KeepSample{event.sample});
    }
    if (++failures_ >= settings_.failures_in_a_row) {
      stop(ScheduleEnd::kGaveUp,
           fmt::format("{} attempts in a row came to no verdict; the last one: {}", failures_, event.why), actions);
    }
  }
  if (settings_.total_tokens > 0 && tokens_ >= settings_.total_tokens)
    stop(ScheduleEnd::kOutOfBudget, "limits.total_tokens were used up", actions);
}

Outcome Schedule::outcome_of_rest() const {
  return stopping_->end == ScheduleEnd::kGaveUp ? Outcome::kInfraError : Outcome::kCancelled;
}

void Schedule::stop(ScheduleEnd end, std::string why, Actions& actions) {
  if (stopping_) return;
  if (running_.empty() && waiting_.empty() && again_.empty()) return;  // it is done
  stopping_ = ScheduleOver{end, std::move(why)};
  for (const size_t sample : running_) actions.emplace_back(StopSample{sample});
  if (end != ScheduleEnd::kInterrupted) {
    for (const auto& [when, sample] : again_)
      actions.emplace_back(GiveUpSample{sample, outcome_of_rest(), stopping_->why});
    for (const size_t sample : waiting_) actions.emplace_back(GiveUpSample{sample, outcome_of_rest(), stopping_->why});
  }
  again_.clear();
  waiting_.clear();
}

void Schedule::start_more(Time now, Actions& actions) {
  while (!stopping_ && running_.size() < settings_.concurrency) {
    size_t sample = 0;
    if (!again_.empty() && again_.begin()->first <= now) {
      sample = again_.begin()->second;
      again_.erase(again_.begin());
    } else if (!waiting_.empty()) {
      sample = waiting_.front();
      waiting_.pop_front();
    } else {
      return;
    }
    running_.insert(sample);
    actions.emplace_back(StartSample{sample, ++attempts_[sample]});
  }
}

std::optional<Time> Schedule::deadline() const {
  std::optional<Time> next;
  if (over_ || stopping_) return next;
  if (!again_.empty() && running_.size() < settings_.concurrency) next = again_.begin()->first;
  if (ends_at_) next = next ? std::min(*next, *ends_at_) : *ends_at_;
  return next;
}

}  // namespace tandem::eval
