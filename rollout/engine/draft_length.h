// How many tokens it pays to draft: a pass with more rows takes longer, and each row that was guessed right saves one.
//
// What rows cost is learned from the passes (PassCost), how often a guess is right from the guesses (DraftRecord): by
// source, and by how much stood before the draft as it did before. A sequence may lose no more by drafts than a share
// of what it has taken so far; when that is used up, it drafts nothing.
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
  // Of a pass of so many rows, at least 1; grows with them. 0 before anything was observed.
  double of(int rows) const;

 private:
  // Rows in steps that grow: 1, 2, 3, 4, then four to each doubling.
  static constexpr int kSizes = 32;
  static int size_of(int rows);
  static double rows_of(int size);
  // Whether it was observed of late: a machine may be busier or less than it was.
  bool known(int size) const { return seconds_[size] > 0 && observed_ - when_[size] < kForgotten; }

  static constexpr uint64_t kForgotten = 256;  // passes
  std::array<double, kSizes> seconds_{};
  std::array<uint64_t, kSizes> when_{};  // the last observation
  uint64_t observed_ = 0;
};

// How often drafted tokens were right.
class DraftRecord {
 public:
  // Of what follows: how likely the next token of a draft is right, given that those before it were.
  double chance(const Draft& draft) const { return chances_[place_of(draft)]; }
  // `right` tokens of a draft were, then it was wrong or over.
  void observe(const Draft& draft, int right);
  // A draft was there, and was not tried: what is known of it fades.
  void skip(const Draft& draft);

 private:
  static constexpr int kLengths = 5;
  static int place_of(const Draft& draft);
  static constexpr std::array<double, kLengths* kDraftSources> kFirst = {0.4, 0.5, 0.7, 0.8,  0.9,   //
                                                                         0.6, 0.7, 0.8, 0.9,  0.95,  //
                                                                         0.5, 0.6, 0.7, 0.75, 0.8};
  std::array<double, kLengths* kDraftSources> chances_ = kFirst;
};

// What drafts have won or lost a turn, in seconds.
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

// 0 to draft.tokens.size(): how many of them are worth their rows.
int worthwhile(const Draft& draft, const DraftRecord& record, const PassCost& cost, const DraftLoad& load,
               const DraftBalance& balance);
// What `drafted` more rows cost a pass of so many, and what a token costs without drafts; seconds.
double cost_of_rows(const PassCost& cost, const DraftLoad& load, int drafted);
double cost_of_token(const PassCost& cost, const DraftLoad& load);

}  // namespace tandem::rollout
