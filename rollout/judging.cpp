#include "rollout/judging.h"

#include <spdlog/spdlog.h>

#include <algorithm>
#include <set>
#include <thread>

namespace tandem::rollout {
namespace {

constexpr size_t kMostPairs = 100'000;  // that wait
constexpr std::chrono::milliseconds kPauseOfJudge{500};

}  // namespace

std::vector<std::pair<size_t, size_t>> pairs_to_compare(size_t count, int rivals) {
  std::vector<std::pair<size_t, size_t>> pairs;
  if (count < 2) return pairs;
  const size_t most = rivals <= 0 ? count - 1 : std::min(count - 1, static_cast<size_t>(rivals));
  std::set<std::pair<size_t, size_t>> known;
  for (size_t step = 1; step <= most; ++step) {
    for (size_t i = 0; i < count; ++i) {
      const size_t j = (i + step) % count;
      if (known.insert({std::min(i, j), std::max(i, j)}).second) pairs.emplace_back(i, j);
    }
  }
  return pairs;
}

Judging::Judging(const JudgingSettings& settings)
    : settings_(settings), queue_(settings.judge ? settings.threads : 1, kMostPairs) {}

Judging::~Judging() {
  if (settings_.judge) settings_.judge->stop();
}

Result<Judging::Verdict> Judging::judge_pair(envs::Judge& judge, const std::string& first, const std::string& second,
                                             int retries) {
  using Winner = envs::Judge::Winner;
  if (first == second) return Verdict{};
  const auto ask = [&](const std::string& a, const std::string& b) -> Result<Winner> {
    for (int tried = 0;; ++tried) {
      auto winner = judge.compare(a, b);
      if (winner || winner.error().code() == Code::kInvalid || winner.error().code() == Code::kCancelled ||
          tried == retries)
        return winner;
      std::this_thread::sleep_for(kPauseOfJudge);
    }
  };
  const Winner forth = TRY(ask(first, second)), back = TRY(ask(second, first));
  if (forth == Winner::kFirst && back == Winner::kSecond) return Verdict{.first = 1};
  if (forth == Winner::kSecond && back == Winner::kFirst) return Verdict{.first = 0};
  return Verdict{.first = 0.5, .agreed = forth == Winner::kNeither && back == Winner::kNeither};
}

void Judging::compare(const Compare& asked) {
  if (groups_.contains(asked.group)) return;
  if (!settings_.judge) {
    done_.push_back({.group = asked.group, .preferred = {}, .failure = "the run has no judge"});
    return;
  }
  const size_t count = asked.candidates.size();
  const auto pairs = pairs_to_compare(count, settings_.rivals);
  Group& group = groups_[asked.group];
  group = {.asked = asked,
           .won = std::vector<double>(count, 0),
           .compared = std::vector<double>(count, 0),
           .open = pairs.size(),
           .failure = {}};
  for (const auto& [i, j] : pairs) {
    const auto job = [this, judge = settings_.judge, retries = settings_.retries, number = asked.group, first = i,
                      second = j, a = asked.candidates[i].shown,
                      b = asked.candidates[j].shown]() -> WorkQueue::Completion {
      auto verdict = judge_pair(*judge, a, b, retries);
      return [this, number, first, second, verdict = std::move(verdict)] { on_pair(number, first, second, verdict); };
    };
    if (!queue_.submit(job)) on_pair(asked.group, i, j, fail(Status::exhausted("too many pairs wait for the judge")));
  }
}

void Judging::on_pair(uint64_t number, size_t first, size_t second, const Result<Verdict>& verdict) {
  const auto found = groups_.find(number);
  if (found == groups_.end()) return;
  Group& group = found->second;
  if (verdict) {
    ++pairs_;
    agreed_ += verdict->agreed;
    group.won[first] += verdict->first;
    group.won[second] += 1 - verdict->first;
    ++group.compared[first];
    ++group.compared[second];
  } else if (group.failure.empty()) {
    group.failure = "reward.judge: " + verdict.error().message();
  }
  if (--group.open > 0) return;
  Compared compared{.group = number, .preferred = {}, .failure = group.failure};
  if (compared.failure.empty()) {
    for (size_t i = 0; i < group.won.size(); ++i)
      compared.preferred.emplace_back(group.asked.candidates[i].key, group.won[i] / group.compared[i]);
  } else {
    ++failed_groups_;
    spdlog::warn("group {} is not compared: {}", number, compared.failure);
  }
  done_.push_back(std::move(compared));
  groups_.erase(found);
}

std::vector<Compared> Judging::take() {
  queue_.run_completions();
  return std::exchange(done_, {});
}

Json Judging::metrics() const {
  if (!settings_.judge) return {};
  const auto use = settings_.judge->use();
  return {{"pairs", pairs_},
          {"agreed", agreed_},
          {"agreement", pairs_ > 0 ? Json(static_cast<double>(agreed_) / static_cast<double>(pairs_)) : Json()},
          {"failed_groups", failed_groups_},
          {"asked", use.asked},
          {"answered", use.answered},
          {"prompt_tokens", use.prompt_tokens},
          {"completion_tokens", use.completion_tokens},
          {"without_usage", use.without_usage},
          {"cost", settings_.price * static_cast<double>(use.prompt_tokens + use.completion_tokens) / 1e6}};
}

}  // namespace tandem::rollout
