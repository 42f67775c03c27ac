#include "rollout/run_notes.h"

#include <spdlog/spdlog.h>

#include <chrono>
#include <utility>

#include "rollout/books/learned_reward.h"

namespace tandem::rollout {

RunNotes::RunNotes(const fs::path& run_dir, uint64_t most_unscored, std::vector<std::string> alarms_off)
    : path_(run_dir / "failures.json"), most_unscored_(most_unscored), alarms_(std::move(alarms_off)) {
  if (auto before = Failures::read(path_)) failures_ = std::move(*before);
  written_ = failures_.count();
}

uint64_t RunNotes::given_up(const Books& books) {
  uint64_t sum = 0;
  for (const char* reason : {"infra_error", "not_compared"}) {
    if (const auto found = books.dropped.find(reason); found != books.dropped.end()) sum += found->second;
  }
  return sum;
}

void RunNotes::failed(const std::string& reason, uint64_t episode, uint64_t again) {
  failures_.failed(reason, episode);
  failures_.failed_again(again);
  if (!verdict_) verdict_ = failures_.verdict(most_unscored_);
}

void RunNotes::committed(const Commit& commit, const Ledger& ledger, uint64_t given_up) {
  const bool is_training = ledger.phase() == Phase::kTrain;
  if (is_training) ++outcomes_[std::string(to_string(commit.outcome))];
  if (commit.outcome == Outcome::kCancelled) return;  // another episode's failure, which is told by that one
  if (!is_of_policy(commit.outcome) || !commit.reward)
    return failed(commit.reason, commit.key.episode,
                  commit.key.attempt > 1 ? 1 : RunNotes::given_up(ledger.books()) - given_up);
  if (is_training && ledger.plan().compare) return;  // what its siblings are to it comes later
  failures_.scored();
  if (is_training) learned_.push_back(learned_reward(commit, ledger.plan().reward));
}

void RunNotes::compared(const Compared& compared, const Ledger& ledger, uint64_t given_up) {
  if (compared.failure.empty()) return failures_.scored();
  failed(compared.failure, 0, RunNotes::given_up(ledger.books()) - given_up);
}

void RunNotes::add_to(Json& line, uint64_t step) {
  if (!outcomes_.empty()) line["outcomes"] = std::exchange(outcomes_, {});
  if (!learned_.empty()) {
    double sum = 0;
    for (const double learned : learned_) sum += learned;
    line["learned_reward"] = sum / static_cast<double>(learned_.size());
    learned_.clear();
  }
  line["attempts_without_reward"] = failures_.count();
  for (const Alarm& alarm : alarms_.step(line)) {
    line["alarms"].push_back(to_json(alarm));
    spdlog::warn("{}", alarm_line(step, line["alarms"].back()));
  }
}

void RunNotes::write(Time now, bool last) {
  // A run that has given up may be ended at once.
  const bool at_once = last || (verdict_ && !std::exchange(verdict_written_, true));
  if (failures_.count() == written_ || (!at_once && now < next_write_)) return;
  next_write_ = now + std::chrono::seconds(1);
  if (write_file(path_, dump_json(failures_.to_file()) + "\n")) written_ = failures_.count();
}

}  // namespace tandem::rollout
