#include "envs/rewards/rewards.h"

#include <fmt/format.h>

#include <algorithm>
#include <thread>

#include "envs/rewards/judge.h"
#include "envs/tools/output.h"

namespace tandem::envs {
namespace {

constexpr double kPauseSeconds = 0.2;  // before the second try, and twice as long before each next one

double pauses_of(int retries) { return kPauseSeconds * ((1 << std::min(retries, 10)) - 1); }

}  // namespace

// One of the questions that may be asked at once.
class Rewards::Permit {
 public:
  Permit(Rewards& rewards, double seconds) : rewards_(rewards) {
    std::unique_lock lock(rewards_.mutex_);
    is_held_ = rewards_.freed_.wait_for(lock, std::chrono::duration<double>(seconds),
                                        [&] { return rewards_.asking_ < rewards_.settings_.concurrency; });
    if (is_held_) ++rewards_.asking_;
  }
  ~Permit() {
    if (!is_held_) return;
    std::lock_guard lock(rewards_.mutex_);
    --rewards_.asking_;
    rewards_.freed_.notify_one();
  }
  Permit(const Permit&) = delete;
  Permit& operator=(const Permit&) = delete;
  explicit operator bool() const { return is_held_; }

 private:
  Rewards& rewards_;
  bool is_held_ = false;
};

Rewards::Rewards(const RewardSettings& settings, std::set<std::string> wanted,
                 std::vector<std::unique_ptr<RewardSource>> sources, const Clock& clock)
    : settings_(settings), wanted_(std::move(wanted)), sources_(std::move(sources)), clock_(clock) {}

std::string Rewards::shown(const PlayedEpisode& episode) const {
  if (!settings_.judge.pairwise || settings_.judge.url.empty() || episode.split != "train") return "";
  return shown_to_judge(episode, static_cast<size_t>(settings_.judge.bytes));
}

RewardCounters Rewards::counters() const {
  std::lock_guard lock(mutex_);
  return counters_;
}

Result<RewardAnswer> Rewards::ask(RewardSource& source, const RewardSource::Question& question) {
  const ContentDigest digest = content_digest({source.identity(), question.text});
  if (settings_.cache > 0) {
    std::lock_guard lock(mutex_);
    if (const auto known = cache_.find(digest); known != cache_.end()) {
      newest_.splice(newest_.begin(), newest_, known->second.second);
      ++counters_.cached;
      return known->second.first;
    }
  }
  auto answer = ask_again(source, question);
  if (!answer || settings_.cache == 0) return answer;
  std::lock_guard lock(mutex_);
  if (cache_.contains(digest)) return answer;
  newest_.push_front(digest);
  cache_.emplace(digest, std::make_pair(*answer, newest_.begin()));
  if (cache_.size() > static_cast<size_t>(settings_.cache)) {
    cache_.erase(newest_.back());
    newest_.pop_back();
  }
  return answer;
}

Result<RewardAnswer> Rewards::ask_again(RewardSource& source, const RewardSource::Question& question) {
  const double patience = settings_.seconds * (settings_.retries + 1) + pauses_of(settings_.retries);
  const Permit permit(*this, patience);
  if (!permit) {
    return fail(Status::exhausted(fmt::format("{} others were being asked for {} s", settings_.concurrency, patience))
                    .hint("raise reward.concurrency"));
  }
  for (int tried = 0;; ++tried) {
    const Time start = clock_.now();
    auto answer = source.ask(question);
    {
      std::lock_guard lock(mutex_);
      ++counters_.asked;
      counters_.answered += answer.has_value();
      counters_.seconds += to_seconds(clock_.now() - start);
    }
    const bool may_help = !answer && answer.error().code() != Code::kInvalid;
    if (!may_help || tried == settings_.retries) return answer;
    std::this_thread::sleep_for(std::chrono::duration<double>(kPauseSeconds * (1 << std::min(tried, 10))));
  }
}

Result<RewardAnswer> Rewards::joined(const PlayedEpisode& episode, const RewardPlace& where) {
  RewardAnswer all;
  std::string whose_turns;
  const auto text = TRY(to_json_text(episode));
  for (const auto& source : sources_) {
    if (!source->asks_about(episode)) continue;
    const auto refuse = [&](const std::string& words) { return fail(Status::corrupt(words).at(source->name())); };
    auto answer = ask(*source, {.episode = episode, .text = text, .where = where, .seconds = settings_.seconds});
    if (!answer) return fail(quotable(answer.error()).at(source->name()));
    for (const auto& [name, value] : answer->terms) {
      if (episode.terms.contains(name)) return refuse(fmt::format("the term {} is one of the task's own grade", name));
      if (!all.terms.emplace(name, value).second) return refuse(fmt::format("the term {} has been said already", name));
    }
    if (answer->turns.empty()) continue;
    if (!all.turns.empty()) return refuse(fmt::format("rewards of turns have been said by {} already", whose_turns));
    all.turns = std::move(answer->turns);
    whose_turns = source->name();
  }
  for (const auto& name : wanted_) {
    if (episode.split != "train") break;
    if (all.terms.contains(name) || episode.terms.contains(name)) continue;
    return fail(Status::corrupt(fmt::format("nobody said the term {}, which reward.weights names", name)));
  }
  return all;
}

Result<RewardAnswer> Rewards::score(const PlayedEpisode& episode, const RewardPlace& where) {
  auto answer = joined(episode, where);
  if (answer) return answer;
  std::lock_guard lock(mutex_);
  ++counters_.failed;
  return answer;
}

Result<std::shared_ptr<Rewards>> rewards_of(const RewardSettings& settings, std::set<std::string> wanted,
                                            const fs::path& folder, const Clock& clock) {
  if (!settings.any()) return std::shared_ptr<Rewards>();
  std::vector<std::unique_ptr<RewardSource>> sources;
  if (!settings.command.empty()) sources.push_back(TRY(command_source(settings, folder)));
  if (!settings.http.empty()) sources.push_back(TRY(http_source(settings)));
  if (!settings.judge.url.empty() && !settings.judge.pairwise)
    sources.push_back(judge_source(TRY(judge_of(settings, folder)), settings));
  if (settings.judge.pairwise) wanted.erase(kPreferredTerm);  // comes when its group is complete
  return std::make_shared<Rewards>(settings, std::move(wanted), std::move(sources), clock);
}

}  // namespace tandem::envs
