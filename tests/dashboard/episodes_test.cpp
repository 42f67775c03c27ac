#include "dashboard/episodes.h"

#include <gtest/gtest.h>

#include "rollout/coordinator.h"
#include "synthetic_run.h"

namespace tandem::dashboard {
namespace {

std::vector<Json> all_of(const SyntheticRun& run, WithTokens with_tokens) {
  std::vector<Json> objects;
  const auto plan = [&]() -> Result<rollout::RunPlan> { return run.plan(); };
  const auto read = visit_episodes(run.dir(), plan, with_tokens, [&](const Json& object) -> Status {
    objects.push_back(object);
    return {};
  });
  EXPECT_TRUE(read) << read.error().to_string();
  return objects;
}

TEST(Episodes, come_in_order_of_admission_with_what_became_of_them) {
  SyntheticRun run(two_kinds());
  run.play(learns);
  const auto episodes = all_of(run, WithTokens::kNo);
  ASSERT_EQ(episodes.size(), 40u);
  for (size_t i = 0; i < episodes.size(); ++i) EXPECT_EQ(episodes[i]["episode"], i);
  const Json& first = episodes[0];
  EXPECT_EQ(first["task"], "find/heldout/0");
  EXPECT_EQ(first["split"], "heldout");
  EXPECT_EQ(first["outcome"], "completed");
  EXPECT_EQ(first["reward"], 1.0);
  EXPECT_EQ(first["terms"]["files"], 1.0);
  EXPECT_EQ(first["dropped"], "heldout");
  EXPECT_TRUE(first["trained_step"].is_null());
  EXPECT_TRUE(first["advantage"].is_null());
  EXPECT_EQ(first["versions"], (Json{0, 0}));
  const Json& trained = episodes[12];
  EXPECT_EQ(trained["split"], "train");
  EXPECT_EQ(trained["trained_step"], 1);
  EXPECT_EQ(trained["advantage"], -0.5);
  EXPECT_EQ(trained["learned_reward"], trained["reward"]);
  EXPECT_TRUE(first["learned_reward"].is_null()) << "what is held out teaches nothing";
  EXPECT_TRUE(trained["dropped"].is_null());
  EXPECT_FALSE(first.contains("tokens"));
}

TEST(Episodes, what_an_episode_teaches_is_its_reward_with_the_weights_of_the_plan) {
  auto plan = two_kinds();
  plan.reward.task = 2;
  plan.reward.terms = {{"files", 0.5}};
  SyntheticRun run(plan);
  run.play(learns);
  int taught = 0;
  for (const Json& episode : all_of(run, WithTokens::kNo)) {
    if (episode["learned_reward"].is_null()) continue;
    ++taught;
    EXPECT_EQ(episode["learned_reward"].get<double>(),
              2 * episode["reward"].get<double>() + 0.5 * episode["terms"]["files"].get<double>())
        << episode.dump();
  }
  EXPECT_GT(taught, 0);
}

TEST(Episodes, tokens_are_parallel_lists_and_only_sampled_ones_have_logprobs) {
  SyntheticRun run(two_kinds());
  run.play(learns, 1);
  const auto episodes = all_of(run, WithTokens::kYes);
  ASSERT_EQ(episodes.size(), 12u);
  EXPECT_EQ(episodes[0]["tokens"].size(), 12u);
  EXPECT_EQ(episodes[0]["sampled"].size(), 12u);
  EXPECT_TRUE(episodes[0]["logprobs"][9].is_null());
  EXPECT_EQ(episodes[0]["logprobs"][10].get<float>(), -0.1f);
  EXPECT_EQ(episodes[0]["token_versions"][11], 0);
  EXPECT_TRUE(episodes[1]["tokens"].empty());  // still under way
  EXPECT_TRUE(episodes[1]["outcome"].is_null());
}

TEST(Episodes, one_dropped_without_a_result_has_the_outcome_of_its_reason) {
  rollout::RunPlan plan = two_kinds();
  plan.max_attempts = 1;
  SyntheticRun run(plan);
  run.send(rollout::WorkerJoined{"w", {}});
  run.send(rollout::Pull{"w", 2});
  run.send(rollout::Expired{{0, 1}});
  run.send(rollout::WorkerLost{"w"});
  const auto episodes = all_of(run, WithTokens::kNo);
  EXPECT_EQ(episodes[0]["outcome"], "timeout");
  EXPECT_EQ(episodes[1]["outcome"], "infra_error");
  EXPECT_EQ(episodes[1]["dropped"], "worker_lost");
  EXPECT_TRUE(episodes[1]["reward"].is_null());
}

TEST(Episodes, a_log_that_was_torn_by_a_crash_is_read_up_to_the_tear) {
  SyntheticRun run(two_kinds());
  run.play(learns, 3);
  const fs::path log = run.dir() / "ledger" / "events.log";
  fs::resize_file(log, fs::file_size(log) - 3);
  const auto episodes = all_of(run, WithTokens::kNo);
  ASSERT_EQ(episodes.size(), 12u);
  EXPECT_EQ(episodes[1]["outcome"], "completed");
  EXPECT_TRUE(episodes[2]["outcome"].is_null());
}

}  // namespace
}  // namespace tandem::dashboard
