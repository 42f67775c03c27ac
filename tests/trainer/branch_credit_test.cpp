// What samples that share a trunk learn of it.
#include "trainer/learn/branch_credit.h"

#include <gtest/gtest.h>

#include <cmath>

#include "base/file.h"
#include "rollout/books/trajectory.h"
#include "trainer/learn/learner.h"
#include "trainer/learn/parts.h"
#include "trainer/sft/tiny_model.h"
#include "trainer/stored_batches.h"

namespace tandem::trainer {
namespace {

TEST(BranchCredit, a_trunk_has_the_mean_of_its_samples_and_counts_once) {
  const std::vector<RowTrunk> trunks = {{5, 2}, {5, 2}, {5, 2}, {-1, 0}, {8, 3}};
  const std::vector<double> advantages = {1, 0, -0.25, 0.5, -1};
  const auto credits = credit_trunks(trunks, advantages, {.by_tree = true, .local = 2});
  EXPECT_DOUBLE_EQ(credits[0].of_trunk, 0.25);
  EXPECT_DOUBLE_EQ(credits[0].own, 1 + 2 * 0.75);
  EXPECT_DOUBLE_EQ(credits[2].own, -0.25 + 2 * -0.5);
  EXPECT_DOUBLE_EQ(credits[3].own, 0.5);
  EXPECT_DOUBLE_EQ(credits[4].of_trunk, -1);  // nobody shares it
  EXPECT_DOUBLE_EQ(credits[4].own, -1);
  const auto shares = trunk_shares(trunks, {});
  EXPECT_DOUBLE_EQ(weight_of(5, shares[0]), 2.0 / 3 + 3);
  EXPECT_DOUBLE_EQ(weight_of(5, shares[4]), 5);
  EXPECT_EQ(token_weights(3, shares[0]), (std::vector<double>{1.0 / 3, 1.0 / 3, 1}));
  EXPECT_TRUE(token_weights(3, shares[3]).empty());
}

TEST(BranchCredit, none_leaves_every_sample_its_own) {
  const std::vector<RowTrunk> trunks = {{5, 2}, {5, 2}};
  const BranchCredit none{.by_tree = false, .local = 1};
  EXPECT_TRUE(trunk_shares(trunks, none).empty());
  const auto credits = credit_trunks(trunks, std::vector<double>{1, 0}, none);
  EXPECT_EQ(credits[0].of_trunk, 1);
  EXPECT_EQ(credits[1].own, 0);
}

TEST(BranchCredit, advantages_that_are_credited_stay) {
  LossBatch batch{.rows = 2, .length = 2};
  batch.mask = {1, 1, 1, 1};
  batch.trunks = {{0, 1}, {0, 1}};
  std::vector<double> advantages = {1, 1, 3, 3};
  credit_trunks(batch, {.by_tree = true, .local = 1}, advantages);
  EXPECT_EQ(advantages, (std::vector<double>{2, 0, 2, 4}));
  batch.is_credited = true;
  credit_trunks(batch, {.by_tree = true, .local = 1}, advantages);
  EXPECT_EQ(advantages, (std::vector<double>{2, 0, 2, 4}));
}

class StoredBranches : public testing::Test {
 protected:
  ~StoredBranches() override { fs::remove_all(folder_); }

  static rollout::Trajectory of(uint64_t episode, std::vector<int32_t> said, uint64_t version = 0) {
    rollout::Trajectory t{.key = {episode, 1}, .group = 4, .numerics_id = "n"};
    t.append(std::vector<int32_t>{1, 2});
    for (const int32_t token : said) t.append_sampled(token, -0.5f, version);
    t.trunk = {.family = 10, .tokens = 4};
    return t;
  }
  Loaded load_all(const std::vector<rollout::Trajectory>& trajectories) {
    auto store = rollout::TrajectoryStore::open(folder_);
    Batch batch{.step = 1, .entries = {}};
    for (const auto& t : trajectories) {
      EXPECT_TRUE(store->append(t).ok());
      EXPECT_EQ(*store->read(t.key), t);
      batch.entries.push_back({t.key, t.group, 1.0});
    }
    return load(*store, batch, *algorithm_named("dr_grpo"));
  }

  const fs::path folder_ = fs::temp_directory_path() / ("tandem-branches-" + std::to_string(::getpid()));
};

TEST_F(StoredBranches, share_what_was_drawn_once) {
  const auto loaded = load_all({of(10, {5, 6, 7}), of(11, {5, 6, 8}), of(12, {5, 6, 9, 9})});
  ASSERT_EQ(loaded.samples.size(), 3u);
  const auto trunks = trunks_of(loaded.samples);
  EXPECT_EQ(trunks[0], (RowTrunk{.number = 0, .tokens = 2}));
  EXPECT_EQ(trunks[1], trunks[0]);
  EXPECT_EQ(trunks[2], trunks[0]);
}

// An episode that was tried again alone under newer weights has a trunk of its own.
TEST_F(StoredBranches, of_other_draws_share_nothing) {
  const auto loaded = load_all({of(10, {5, 6, 7}), of(11, {5, 6, 8}, 1), of(12, {5, 5, 9})});
  const auto trunks = trunks_of(loaded.samples);
  EXPECT_NE(trunks[1].number, trunks[0].number);
  EXPECT_NE(trunks[2].number, trunks[0].number);
  EXPECT_TRUE(trunk_shares(trunks, {}).empty());
}

TEST_F(StoredBranches, of_a_run_without_them_are_none) {
  auto plain = of(10, {5, 6, 7});
  plain.trunk = {};
  const auto loaded = load_all({plain, of(11, {5, 6, 8})});
  EXPECT_LT(loaded.samples[0].trunk, 0);
}

}  // namespace
}  // namespace tandem::trainer
