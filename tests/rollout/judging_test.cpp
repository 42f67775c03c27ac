// Groups that are compared by a judge: which pairs, what becomes of verdicts that disagree, and of judges that fail.
#include "rollout/judging.h"

#include <gtest/gtest.h>

#include <set>

#include "tests/cli/scripted_server.h"
#include "tests/envs/gullible_judge.h"
#include "tests/within.h"

namespace tandem::rollout {
namespace {

using namespace std::chrono_literals;
using Manner = GullibleJudge::Manner;

JudgingSettings settings_for(const std::string& url, int rivals = 0) {
  return {.judge = std::make_shared<envs::Judge>(envs::Judge::Settings{.url = url, .model = "m", .rubric = "r"}),
          .threads = 3,
          .rivals = rivals,
          .retries = 0,
          .price = 2};
}

Compare group_of(std::vector<std::string> works) {
  Compare group{.group = 7, .candidates = {}};
  for (size_t i = 0; i < works.size(); ++i) group.candidates.push_back({{i, 1}, works[i]});
  return group;
}

Compared verdict_on(Judging& judging, const Compare& group) {
  judging.compare(group);
  std::vector<Compared> verdicts;
  EXPECT_TRUE(within(60s, [&] { return !(verdicts = judging.take()).empty(); }));
  return verdicts.empty() ? Compared{} : verdicts.front();
}

TEST(PairsToCompare, each_meets_its_rivals_once) {
  EXPECT_TRUE(pairs_to_compare(1, 0).empty());
  EXPECT_EQ(pairs_to_compare(2, 0).size(), 1U);
  EXPECT_EQ(pairs_to_compare(8, 0).size(), 28U);
  EXPECT_EQ(pairs_to_compare(8, 2).size(), 16U);
  EXPECT_EQ(pairs_to_compare(3, 5).size(), 3U);
  std::vector<int> met(8, 0);
  for (const auto& [i, j] : pairs_to_compare(8, 2)) ++met[i], ++met[j];
  EXPECT_EQ(met, std::vector<int>(8, 4));
}

TEST(Judging, gives_each_the_share_of_its_comparisons_that_it_won) {
  GullibleJudge server;
  Judging judging(settings_for(server.url()));
  const auto verdict =
      verdict_on(judging, group_of({"quality 0.1\n", "quality 0.9\n", "quality 0.5\n", "quality 0.5\n"}));
  EXPECT_EQ(verdict.group, 7U);
  EXPECT_EQ(verdict.failure, "");
  ASSERT_EQ(verdict.preferred.size(), 4U);
  EXPECT_EQ(verdict.preferred[0].second, 0);
  EXPECT_EQ(verdict.preferred[1].second, 1);
  EXPECT_EQ(verdict.preferred[2].second, 0.5);
  EXPECT_EQ(verdict.preferred[3].second, 0.5);
  EXPECT_EQ(judging.metrics().at("agreement"), 1);
  EXPECT_EQ(server.asked(), 10);  // 5 pairs in both orders; equal works are a tie
  EXPECT_EQ(judging.metrics().at("prompt_tokens"), 1000);
  EXPECT_DOUBLE_EQ(judging.metrics().at("cost").get<double>(), 2 * 1100 / 1e6);
}

TEST(Judging, a_judge_that_prefers_an_order_prefers_nobody_and_is_seen) {
  GullibleJudge server(Manner::kFirstWins);
  Judging judging(settings_for(server.url()));
  const auto verdict = verdict_on(judging, group_of({"quality 0.1\n", "quality 0.9\n"}));
  EXPECT_EQ(verdict.preferred[0].second, 0.5);
  EXPECT_EQ(verdict.preferred[1].second, 0.5);
  EXPECT_EQ(judging.metrics().at("agreement"), 0);
}

TEST(Judging, one_that_fails_leaves_no_verdict_on_the_group) {
  ScriptedServer server;  // closes each connection
  Judging judging(settings_for(server.url()));
  const auto verdict = verdict_on(judging, group_of({"a", "b", "c"}));
  EXPECT_TRUE(verdict.failure.starts_with("reward.judge: ")) << verdict.failure;
  EXPECT_TRUE(verdict.preferred.empty());
  EXPECT_EQ(judging.metrics().at("failed_groups"), 1);
}

TEST(Judging, without_a_judge_says_so_at_once) {
  Judging judging({});
  judging.compare(group_of({"a", "b"}));
  EXPECT_EQ(judging.take().at(0).failure, "the run has no judge");
  EXPECT_TRUE(judging.metrics().is_null());
}

TEST(Judging, ends_while_a_question_is_open) {
  ScriptedServer server;
  server.answer({ScriptedServer::kNever, {}, ""});
  Judging judging(settings_for(server.url()));
  judging.compare(group_of({"a", "b"}));
  EXPECT_TRUE(within(60s, [&] { return !server.requests().empty(); }));
}

}  // namespace
}  // namespace tandem::rollout
