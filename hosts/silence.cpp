#include "hosts/silence.h"

#include <fmt/format.h>

#include <algorithm>
#include <utility>

namespace tandem::hosts {
namespace {

using namespace std::chrono_literals;

constexpr Duration kLongestTick = 1s;  // what is longer is our own absence
constexpr Duration kAskOthersAgain = 1s;
constexpr Duration kAnswerHolds = 3s;  // what was said longer ago may be otherwise by now

}  // namespace

void RunsHeard::tick(Time now) {
  const Duration gap = now - last_tick_;
  last_tick_ = now;
  if (gap <= kLongestTick) return;
  begun_ += gap;
  for (auto& [run, heard] : runs_) heard.at += gap;
}

void RunsHeard::heard(uint64_t run, Time now) {
  runs_[run].at = now;
  if (runs_.size() <= kMostRuns) return;
  runs_.erase(std::min_element(runs_.begin(), runs_.end(),
                               [](const auto& a, const auto& b) { return a.second.at < b.second.at; }));
}

void RunsHeard::opened(uint64_t run, Time now) {
  heard(run, now);
  runs_[run].is_over = false;
}

void RunsHeard::over(uint64_t run, Time now) {
  heard(run, now);
  runs_[run].is_over = true;
}

Silence RunsHeard::silence(uint64_t run, Time now) const {
  const auto found = runs_.find(run);
  const Time since = found == runs_.end() ? begun_ : found->second.at;
  return {.seconds = std::max(0.0, to_seconds(now - since)), .is_over = found != runs_.end() && found->second.is_over};
}

size_t MajorityWatch::agreeing(Time now) const {
  return 1 + static_cast<size_t>(std::count_if(answers_.begin(), answers_.end(), [&](const auto& entry) {
           const Answer& answer = entry.second;
           return now - answer.at <= kAnswerHolds && !answer.silence.is_over &&
                  answer.silence.seconds >= terms_.patience;
         }));
}

std::string MajorityWatch::given_back(Time now) const {
  for (const auto& [host, answer] : answers_) {
    if (now - answer.at <= kAnswerHolds && answer.silence.is_over) return host;
  }
  return "";
}

MajorityWatch::Turn MajorityWatch::tick(const Silence& here, Time now) {
  Turn turn;
  if (state_ == State::kTaking || state_ == State::kDone) return turn;
  if (here.is_over || here.seconds < terms_.patience) {
    if (state_ == State::kAsking) turn.news.push_back(fmt::format("run {} is heard again", terms_.run));
    state_ = State::kListening;
    answers_.clear();
    attempts_ = 0;
    not_before_ = {};
    return turn;
  }
  if (now < not_before_) return turn;
  if (state_ == State::kListening) {
    state_ = State::kAsking;
    next_ask_ = {};
    told_ = 0;
    told_of_end_ = false;
    turn.news.push_back(fmt::format("run {} has said nothing for {:.0f} s: its {} other hosts are asked", terms_.run,
                                    here.seconds, terms_.others.size()));
  }
  const size_t agree = agreeing(now);
  const std::string ended_at = given_back(now);
  if (!ended_at.empty() && !std::exchange(told_of_end_, true)) {
    turn.news.push_back(
        fmt::format("host {} says that run {} has given it back: an operator decides (`tandem run --take-over`)",
                    ended_at, terms_.run));
  }
  if (ended_at.empty() && agree >= needed()) {
    state_ = State::kTaking;
    ++attempts_;
    turn.takes_over = true;
    turn.news.push_back(fmt::format("{} of {} hosts hear nothing of run {}: it is taken over", agree,
                                    terms_.others.size() + 1, terms_.run));
    return turn;
  }
  if (now >= next_ask_) {
    // An answer to the last question has come by now, if it comes.
    if (next_ask_ != Time{} && agree != told_) {
      turn.news.push_back(fmt::format("{} of {} hosts hear nothing of run {}; {} are needed to take it over", agree,
                                      terms_.others.size() + 1, terms_.run, needed()));
      told_ = agree;
    }
    next_ask_ = now + kAskOthersAgain;
    turn.asks = terms_.others;
  }
  return turn;
}

void MajorityWatch::on(const std::string& host, const Silence& there, Time now) {
  if (state_ != State::kAsking) return;
  if (std::find(terms_.others.begin(), terms_.others.end(), host) == terms_.others.end()) return;
  answers_[host] = {.silence = there, .at = now};
}

void MajorityWatch::failed(Time now) {
  state_ = attempts_ < kMostAttempts ? State::kListening : State::kDone;
  answers_.clear();
  not_before_ = now + from_seconds(terms_.patience);
}

}  // namespace tandem::hosts
