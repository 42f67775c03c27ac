#include "rollout/engine/drafts.h"

#include <gtest/gtest.h>

#include "base/random.h"
#include "rollout/engine/draft_length.h"

namespace tandem::rollout::draft_tests {
namespace {

using Tokens = std::vector<int32_t>;

TEST(TokenLookup, finds_the_longest_match_and_of_those_the_nearest) {
  const Tokens text = {9, 1, 2, 3, 50, 8, 1, 2, 3, 60, 7, 1, 2, 3, 70};
  TokenLookup lookup;
  lookup.grow(std::span(text).first(6));
  lookup.grow(text);
  const auto find = [&](Tokens end, int near) { return lookup.find(text, end, near); };
  EXPECT_EQ(find({8, 1, 2, 3}, 0).at, 9) << "the longest";
  EXPECT_EQ(find({8, 1, 2, 3}, 0).length, 4);
  EXPECT_EQ(find({1, 2, 3}, 0).at, 4) << "the nearest";
  EXPECT_EQ(find({1, 2, 3}, 15).at, 14);
  EXPECT_EQ(find({2, 3, 1}, 0).length, 0);
  EXPECT_EQ(find({2, 3}, 0).length, 0) << "too short to say anything";
  EXPECT_EQ(find({3, 70, 1}, 0).length, 0) << "nothing follows the end";
}

TEST(Drafts, a_text_that_repeats_goes_on_in_its_own_draft) {
  Drafts drafts;
  drafts.begin_turn({});
  const Tokens text = {1, 2, 3, 4, 1, 2, 3};
  const auto draft = drafts.next(text, 6);
  EXPECT_EQ(draft.tokens, (Tokens{4, 1, 2, 3, 4, 1}));
  EXPECT_EQ(draft.matched, 3);
  EXPECT_TRUE(drafts.next(text, 0).tokens.empty());
  EXPECT_TRUE(drafts.next(Tokens{5, 6, 7}, 4).tokens.empty());
}

// Follows an answer in a prediction; how many of its tokens would have been drafted rightly as the next one.
int foreseen(Drafts& drafts, const Tokens& prompt, const Tokens& answer) {
  Tokens all = prompt;
  int count = 0;
  for (const int32_t token : answer) {
    const auto draft = drafts.next(all, 1);
    count += !draft.tokens.empty() && draft.tokens[0] == token;
    all.push_back(token);
    drafts.said(all, static_cast<int>(prompt.size()));
  }
  return count;
}

TEST(Drafts, an_answer_is_followed_in_the_prediction_through_edits) {
  Random random(5);
  Tokens file(400);
  for (auto& token : file) token = static_cast<int32_t>(random.below(5000));
  const Tokens prompt = {1, 2, 3};
  const auto of = [&](const Tokens& answer) {
    Drafts drafts;
    drafts.begin_turn(file);
    return foreseen(drafts, prompt, answer);
  };
  EXPECT_EQ(of(file), 400);
  auto changed = file;
  changed[100] = 5001;
  EXPECT_GE(of(changed), 397) << "one token changed";
  auto shorter = file;
  shorter.erase(shorter.begin() + 100, shorter.begin() + 150);
  EXPECT_GE(of(shorter), 345) << "50 of 400 left out";
  auto longer = file;
  for (int i = 0; i < 30; ++i) longer.insert(longer.begin() + 200, 5002 + i);
  EXPECT_GE(of(longer), 395) << "30 put in";
  EXPECT_EQ(of(Tokens(50, 6000)), 46) << "what repeats itself, though nothing was predicted";
}

TEST(DraftLength, is_what_pays) {
  PassCost cost;
  DraftRecord record;
  const Draft draft{Tokens(40, 1), DraftSource::kOwnTokens, 32};
  EXPECT_EQ(worthwhile(draft, record, cost, {}, {}), 0) << "nothing is known of passes";
  // Rows that cost a tenth of a pass each.
  for (const int rows : {1, 2, 4, 8, 16, 32, 48}) cost.observe(rows, 1 + 0.1 * (rows - 1));
  EXPECT_DOUBLE_EQ(cost.of(6), 1.5);
  EXPECT_GT(worthwhile(draft, record, cost, {}, {}), 8);
  EXPECT_LE(worthwhile(draft, record, cost, {}, {}), 15) << "no more than a turn may lose";
  // Where each row costs a whole pass nothing is won.
  PassCost dear;
  for (const int rows : {1, 2, 4, 8}) dear.observe(rows, rows);
  EXPECT_EQ(worthwhile(draft, record, dear, {}, {}), 0);
  // What was wrong often is not tried again, and what has used up its allowance neither.
  for (int i = 0; i < 50; ++i) record.observe(draft, 0);
  EXPECT_EQ(worthwhile(draft, record, cost, {}, {.plain = 100, .won = 100}), 0);
  EXPECT_EQ(worthwhile(draft, DraftRecord(), cost, {}, {.plain = 0, .won = -1.5}), 0);
  // Forgotten in time.
  for (int i = 0; i < 500; ++i) record.skip(draft);
  EXPECT_GT(worthwhile(draft, record, cost, {}, {.plain = 100, .won = 100}), 8);
}

TEST(DraftLength, a_record_comes_to_the_share_that_is_right) {
  Random random(7);
  const Draft draft{Tokens(4, 1), DraftSource::kPrediction, 5};
  for (const double share : {0.3, 0.6, 0.9}) {
    DraftRecord record;
    double sum = 0;
    for (int i = 0; i < 4000; ++i) {
      int right = 0;
      while (right < 4 && random.uniform() < share) ++right;
      record.observe(draft, right);
      sum += record.chance(draft);
    }
    EXPECT_NEAR(sum / 4000, share, 0.1);
  }
}

// Random outcomes at every chance: what drafts lose stays within the share that they may lose.
TEST(DraftLength, a_turn_loses_no_more_than_a_share) {
  for (const double share : {0.0, 0.05, 0.1, 0.3, 0.7}) {
    Random random(11);
    PassCost cost;
    for (const int rows : {1, 2, 4, 8, 16, 32, 48}) cost.observe(rows, 1 + 0.12 * (rows - 1));
    DraftRecord record;
    DraftBalance balance;
    double seconds = 0;
    int tokens = 0;
    while (tokens < 1000) {
      Draft draft{Tokens(30, 1), DraftSource::kOwnTokens, 4};
      draft.tokens.resize(worthwhile(draft, record, cost, {}, balance));
      const int drafted = static_cast<int>(draft.tokens.size());
      int right = 0;
      while (right < drafted && random.uniform() < share) ++right;
      seconds += cost.of(1 + drafted);
      tokens += right + 1;
      balance.plain += right + 1;
      balance.won += right - cost_of_rows(cost, {}, drafted);
      if (drafted > 0)
        record.observe(draft, right);
      else
        record.skip({Tokens(1, 1), DraftSource::kOwnTokens, 4});
    }
    EXPECT_LT(seconds, 1.03 * tokens) << share;
    if (share >= 0.7) {
      EXPECT_LT(seconds, 0.75 * tokens);
    }
  }
}

}  // namespace
}  // namespace tandem::rollout::draft_tests
