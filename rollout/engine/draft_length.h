// Chooses how many tokens to draft: a pass with more rows takes longer, and each accepted token saves a pass.
//
// The cost of rows is measured on passes (PassCost), the acceptance rate on earlier drafts (DraftRecord): by source,
// and by the length of the match before the draft. Drafts may cost a sequence at most a share of its time so far; after
// that it drafts nothing.
//
// Pure: times come in as numbers. Thread safety: none.
#pragma once

#include <array>
#include <cstdint>

#include "rollout/engine/drafts.h"

namespace tandem::rollout {

// Seconds of a pass by its rows.
class PassCost {
 public:
  void observe(int rows, double seconds);
  // Estimated seconds of a pass of `rows` rows, at least 1. Monotonic in `rows`. 0 before the first observation.
  double of(int rows) const;

 private:
  // Buckets of row counts: 1, 2, 3, 4, then four for each doubling.
  static constexpr int kSizes = 32;
  static int size_of(int rows);
  static double rows_of(int size);
  // Whether the bucket was observed lately; the load of the machine changes.
  bool known(int size) const { return seconds_[size] > 0 && observed_ - when_[size] < kForgotten; }

  static constexpr uint64_t kForgotten = 256;  // passes
  std::array<double, kSizes> seconds_{};
  std::array<uint64_t, kSizes> when_{};  // the last observation
  uint64_t observed_ = 0;
};

// Acceptance rates of drafted tokens.
class DraftRecord {
 public:
  // The probability that the next token of a draft is accepted, given that those before it were.
  double chance(const Draft& draft) const { return chances_[place_of(draft)]; }
  // Records that the first `right` tokens of a draft were accepted.
  void observe(const Draft& draft, int right);
  // Records that a draft was not tried; its statistics decay.
  void skip(const Draft& draft);

 private:
  static constexpr int kLengths = 5;
  static int place_of(const Draft& draft);
  static constexpr std::array<double, kLengths* kDraftSources> kFirst = {0.4, 0.5, 0.7, 0.8,  0.9,   //
                                                                         0.6, 0.7, 0.8, 0.9,  0.95,  //
                                                                         0.5, 0.6, 0.7, 0.75, 0.8};
  std::array<double, kLengths* kDraftSources> chances_ = kFirst;
};

// Seconds that drafts have saved or cost a turn.
struct DraftBalance {
  double plain = 0;  // what its tokens would have taken without
  double won = 0;    // saved by drafts less spent on them
};

struct DraftLoad {
  int sequences = 1;  // that sample in the pass
  int rows = 1;       // of the pass so far, those drafted for others included
  int drafted = 0;    // of them
};

inline constexpr int kMostDrafted = 48;

// Returns how many tokens of the draft are worth their rows, 0 to draft.tokens.size().
int worthwhile(const Draft& draft, const DraftRecord& record, const PassCost& cost, const DraftLoad& load,
               const DraftBalance& balance);
// Seconds that `drafted` more rows add to a pass, and seconds of a token without drafts.
double cost_of_rows(const PassCost& cost, const DraftLoad& load, int drafted);
double cost_of_token(const PassCost& cost, const DraftLoad& load);

}  // namespace tandem::rollout
