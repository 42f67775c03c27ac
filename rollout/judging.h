// Compares groups by a judge: asks about pairs of episodes on threads, in both orders, and combines the answers to a
// verdict on the group.
//
// Thread safety: compare(), take() and metrics() on the owner's thread.
#pragma once

#include <map>
#include <memory>
#include <string>
#include <vector>

#include "base/json.h"
#include "base/work_queue.h"
#include "envs/rewards/judge.h"
#include "rollout/books/actions.h"

namespace tandem::rollout {

struct JudgingSettings {
  std::shared_ptr<envs::Judge> judge;  // null: nobody is asked
  int threads = 4;                     // questions at once
  int rivals = 2;                      // siblings after it that each episode is compared with; 0: all
  int retries = 1;                     // of each question
  double price = 0;                    // of a million tokens
};

// Pairs (i, j) of `count` episodes: each with the `rivals` next ones in a ring; no pair twice.
std::vector<std::pair<size_t, size_t>> pairs_to_compare(size_t count, int rivals);

class Judging {
 public:
  explicit Judging(const JudgingSettings& settings);
  ~Judging();  // ends what is being asked

  // Starts a comparison. Ignored for a group that is being compared already.
  void compare(const Compare& group);
  // Returns the verdicts since the last call: the share of its comparisons that each episode won; a tie counts half.
  // Where the two orders of a pair disagree, it is a tie.
  std::vector<Compared> take();
  // Counts of pairs, of pairs whose orders agree, of questions and tokens, and cost; null without a judge.
  Json metrics() const;

 private:
  struct Group {
    Compare asked;
    std::vector<double> won, compared;  // by candidate
    size_t open = 0;                    // pairs
    std::string failure;
  };
  // 1 where the first is better in both orders, 0 where the second is, else 0.5.
  struct Verdict {
    double first = 0.5;
    bool agreed = true;
  };
  static Result<Verdict> judge_pair(envs::Judge& judge, const std::string& first, const std::string& second,
                                    int retries);
  void on_pair(uint64_t group, size_t first, size_t second, const Result<Verdict>& verdict);

  const JudgingSettings settings_;
  std::map<uint64_t, Group> groups_;
  std::vector<Compared> done_;
  uint64_t pairs_ = 0, agreed_ = 0, failed_groups_ = 0;
  WorkQueue queue_;  // its threads use what stands above
};

}  // namespace tandem::rollout
