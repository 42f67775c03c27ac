#include "run/effects.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "run/rewards.h"

namespace tandem::run {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;
using testing::IsEmpty;
using testing::UnorderedElementsAre;

std::vector<std::string> effects_of(std::vector<std::string> overrides) {
  RunConfig config;
  Schema schema = schema_of(config);
  EXPECT_TRUE(schema.read("", overrides));
  return without_effect(config, schema);
}

TEST(Effects, a_value_that_does_nothing_is_named_with_its_reason) {
  EXPECT_THAT(effects_of({"algorithm.kl.coefficient=0.1"}),
              ElementsAre(HasSubstr("algorithm.kl.coefficient has no effect: algorithm.kl.estimator is none")));
  EXPECT_THAT(effects_of({"algorithm.kl.coefficient=0.1", "algorithm.kl.estimator=k3"}), IsEmpty());
  EXPECT_THAT(effects_of({"algorithm.kl.in_reward=true"}), ElementsAre(HasSubstr("kl.in_reward has no effect")));
  EXPECT_THAT(effects_of({"algorithm.name=cispo", "algorithm.dual_clip=3"}), ElementsAre(HasSubstr("no such bound")));
  EXPECT_THAT(effects_of({"algorithm.name=grpo", "algorithm.dual_clip=3"}), IsEmpty());
  EXPECT_THAT(effects_of({"trainer.momentum=0.5", "lora.alpha=3"}),
              ElementsAre(HasSubstr("trainer.momentum"), HasSubstr("lora.alpha")));
  EXPECT_THAT(effects_of({"algorithm.name=dppo", "algorithm.clip_low=0.1"}), ElementsAre(HasSubstr("clip_low")));
  EXPECT_THAT(effects_of({"algorithm.pass_at_k.k=2", "trainer.kl_stop=0.1"}),
              ElementsAre(HasSubstr("pass_at_k.k"), HasSubstr("trainer.kl_stop has no effect: a step has one update")));
  EXPECT_THAT(effects_of({"algorithm.gigpo.weight=2", "algorithm.gamma=0.9"}),
              ElementsAre(HasSubstr("algorithm.gamma"), HasSubstr("gigpo.weight")));
  EXPECT_THAT(effects_of({"algorithm.name=gigpo", "algorithm.gigpo.weight=2", "algorithm.gamma=0.9"}), IsEmpty());
  EXPECT_THAT(effects_of({"algorithm.advantage=pass_at_k", "algorithm.pass_at_k.k=2", "algorithm.std_epsilon=0.1",
                          "trainer.kl_stop=0.1", "trainer.epochs=2"}),
              IsEmpty());
  EXPECT_THAT(effects_of({"algorithm.teacher.weight=2"}), ElementsAre(HasSubstr("names no teacher")));
  EXPECT_THAT(effects_of({"algorithm.teacher.weight=2", "algorithm.teacher.path=x"}), IsEmpty());
  EXPECT_THAT(effects_of({"algorithm.name=sapo", "algorithm.clip_low=0.1"}), ElementsAre(HasSubstr("has no clip")));
  EXPECT_THAT(effects_of({"algorithm.correction.kind=tis", "algorithm.correction.low=0.5"}),
              ElementsAre(HasSubstr("correction.low has no effect: algorithm.correction.kind is tis")));
  EXPECT_THAT(effects_of({"algorithm.correction.kind=mis", "algorithm.correction.low=0.5"}), IsEmpty());
  EXPECT_THAT(effects_of({"reward.effort_k=2"}), ElementsAre(HasSubstr("reward.effort is 0")));
  EXPECT_THAT(effects_of({"reward.effort_k=2", "reward.effort=0.1"}), IsEmpty());
  EXPECT_THAT(effects_of({"run.steps=30", "tasks.heldout_every=50"}), ElementsAre(HasSubstr("the run has 30 steps")));
  EXPECT_THAT(effects_of({"env.external_programs=3"}), ElementsAre(HasSubstr("env.external names none")));
  EXPECT_THAT(effects_of({"rollout.workers=1", "rollout.steal_from=3"}),
              ElementsAre(HasSubstr("nobody to steal from")));
}

TEST(Effects, groups_without_a_signal_are_those_of_algorithms_with_advantages_of_groups) {
  EXPECT_THAT(effects_of({"algorithm.name=ppo", "trainer.dynamic_sampling=2"}),
              ElementsAre(HasSubstr("trainer.dynamic_sampling has no effect: algorithm.advantage is gae")));
  EXPECT_THAT(effects_of({"algorithm.name=dapo", "trainer.dynamic_sampling=2"}), IsEmpty());
}

TEST(Effects, replaced_groups_are_the_algorithms_own_number_unless_given) {
  const auto replaced = [](std::vector<std::string> overrides) {
    RunConfig config;
    Schema schema = schema_of(config);
    EXPECT_TRUE(schema.read("", overrides));
    return dynamic_sampling_of(config);
  };
  EXPECT_EQ(replaced({}), 0);
  EXPECT_EQ(replaced({"algorithm.name=dapo"}), 10);
  EXPECT_EQ(replaced({"algorithm.name=dapo", "trainer.dynamic_sampling=-1"}), 10);
  EXPECT_EQ(replaced({"algorithm.name=dapo", "trainer.dynamic_sampling=0"}), 0);
  EXPECT_EQ(replaced({"algorithm.name=grpo", "trainer.dynamic_sampling=3"}), 3);
}

TEST(Effects, a_loss_says_which_shared_keys_it_reads) {
  const auto without = [](const std::string& name) {
    std::vector<std::string> keys;
    for (const std::string& sentence :
         effects_of({"algorithm.name=" + name, "algorithm.clip_low=0.1", "algorithm.clip_high=0.7",
                     "algorithm.dual_clip=3", "algorithm.mask_low=0.1"})) {
      const size_t begin = sentence.find("algorithm.") + 10;
      keys.push_back(sentence.substr(begin, sentence.find(' ', begin) - begin));
    }
    return keys;
  };
  EXPECT_THAT(without("grpo"), UnorderedElementsAre("mask_low"));
  EXPECT_THAT(without("gspo"), UnorderedElementsAre("mask_low"));
  EXPECT_THAT(without("clip_cov"), UnorderedElementsAre("mask_low"));
  for (const char* name : {"cispo", "gmpo"}) EXPECT_THAT(without(name), UnorderedElementsAre("dual_clip", "mask_low"));
  for (const char* name : {"sapo", "kl_cov"})
    EXPECT_THAT(without(name), UnorderedElementsAre("clip_low", "clip_high", "dual_clip", "mask_low"));
  EXPECT_THAT(without("dppo"), UnorderedElementsAre("clip_low", "clip_high", "dual_clip"));
}

TEST(Effects, keys_of_branches_do_nothing_without_a_branch) {
  EXPECT_THAT(effects_of({"rollout.branch.last_turn=2", "algorithm.branch_credit=none", "algorithm.branch_local=1"}),
              ElementsAre(HasSubstr("branch_credit has no effect: rollout.branch.ways is 1"),
                          HasSubstr("branch_local has no effect: rollout.branch.ways is 1"),
                          HasSubstr("last_turn has no effect: rollout.branch.ways is 1")));
  EXPECT_THAT(effects_of({"rollout.branch.ways=2", "algorithm.branch_credit=none", "algorithm.branch_local=1"}),
              ElementsAre(HasSubstr("branch_local has no effect: algorithm.branch_credit is none")));
  EXPECT_THAT(effects_of({"rollout.branch.ways=2", "rollout.branch.last_turn=2", "algorithm.branch_local=1"}),
              IsEmpty());
}

TEST(Effects, are_looked_for_in_lines_of_kinds) {
  EXPECT_THAT(
      effects_of({R"(algorithm.kinds=["set=grpo gamma=0.5 sapo.tau_positive=2"])"}),
      ElementsAre(HasSubstr("algorithm.kinds: \"set=grpo gamma=0.5 sapo.tau_positive=2\": algorithm.gamma has no "
                            "effect: algorithm.advantage is grpo"),
                  HasSubstr("algorithm.sapo.tau_positive has no effect: algorithm.name is grpo")));
  EXPECT_THAT(effects_of({R"(algorithm.kinds=["set=reinforce++ gamma=0.5","run=sapo sapo.tau_positive=2"])"}),
              IsEmpty());
  EXPECT_THAT(effects_of({R"(algorithm.kinds=["set=grpo teacher.weight=2"])"}), ElementsAre(HasSubstr("no teacher")));
  EXPECT_THAT(effects_of({R"(algorithm.kinds=["set=grpo teacher.weight=2"])", "algorithm.teacher.path=x"}), IsEmpty());
}

TEST(Effects, defaults_and_values_that_repeat_them_are_no_news) {
  EXPECT_THAT(effects_of({}), IsEmpty());
  EXPECT_THAT(effects_of({"trainer.momentum=0.95"}), IsEmpty());
}

TEST(RunConfigCheck, a_teacher_behind_an_endpoint_says_what_it_can_be_compared_with) {
  const auto refused = [](std::vector<std::string> keys, const std::string& words) {
    RunConfig config;
    Schema schema = schema_of(config);
    keys.insert(keys.end(), {"algorithm.advantage=distill", "algorithm.teacher.url=http://127.0.0.1:1/v1"});
    ASSERT_TRUE(schema.read("", keys));
    EXPECT_THAT(check(config).message(), HasSubstr(words));
  };
  const std::string model = "algorithm.teacher.model=big";
  refused({model}, "");
  refused({}, "algorithm.teacher.model is empty: give the name that the endpoint has for the model");
  refused({model, "algorithm.teacher.path=x"}, "name a teacher each");
  refused({model, "algorithm.teacher.key_env=A", "algorithm.teacher.key_file=b"}, "both say where the key is");
  refused({model, "rollout.temperature=0.7"}, "at temperature 1, and rollout.temperature is 0.7");
  refused({model, "rollout.top_p=0.9"}, "rollout.top_k, rollout.top_p or rollout.min_p cuts some off");
  RunConfig config;
  (void)schema_of(config);  // sets the defaults of lists
  config.algorithm.teacher.endpoint = {.url = "ftp://x", .model = "big", .key_env = {}, .key_file = {}};
  EXPECT_THAT(check(config).message(), HasSubstr("algorithm.teacher.url: "));
  config.algorithm.teacher.endpoint.url = "http://x/v1";
  EXPECT_TRUE(check(config)) << check(config).message();
  EXPECT_TRUE(plan_of(config, "")->all_groups);
  EXPECT_THAT(effects_of({"algorithm.teacher.seconds=3"}), ElementsAre(HasSubstr("algorithm.teacher.url is empty")));
}

TEST(RunConfigCheck, distillation_needs_a_teacher_which_keeps_groups_of_equal_rewards) {
  RunConfig config;
  Schema schema = schema_of(config);
  ASSERT_TRUE(schema.read("", std::vector<std::string>{"algorithm.advantage=distill"}));
  EXPECT_THAT(check(config).message(), HasSubstr("algorithm.advantage: distill needs a model that teaches"));
  config.algorithm.teacher.path = "x";
  EXPECT_TRUE(check(config)) << check(config).message();
  EXPECT_TRUE(plan_of(config, "")->all_groups);
  EXPECT_THAT(alarms_off_of(config), ElementsAre("no_signal"));
  config.trainer.group_size = 1;
  EXPECT_TRUE(check(config)) << check(config).message();
  config.algorithm.advantage = "grpo";
  EXPECT_THAT(check(config).message(), HasSubstr("trainer.group_size is 1"));
  EXPECT_FALSE(plan_of(RunConfig{}, "")->all_groups);
}

TEST(RunConfigCheck, mistakes_across_keys_are_told_at_once) {
  RunConfig config;
  config.rollout.max_tokens = 128;
  config.rollout.max_new_tokens = 256;
  config.env.warm = 50;
  config.env.most_warm = 2;
  config.tasks.set_kinds = {"w"};
  const Status status = check(config);
  EXPECT_THAT(status.message(), HasSubstr("rollout.max_new_tokens (256)"));
  EXPECT_THAT(status.message(), HasSubstr("env.warm (50)"));
  EXPECT_THAT(status.message(), HasSubstr("tasks.set_kinds needs tasks.path"));
}

// A rollout that gave up before the server does would never see a slow answer.
TEST(EnvDeadlines, are_no_shorter_than_what_the_environment_server_may_take) {
  RunConfig config;
  config.env.external = {"maze=python3 maze.py", "far=http://127.0.0.1:9"};
  config.env.external_seconds = 200;
  const auto deadlines = env_deadlines_of(config);
  ASSERT_TRUE(deadlines.has_value()) << deadlines.error().to_string();
  EXPECT_GT(deadlines->of_kind.at("far"), 200);
  EXPECT_GT(deadlines->of_kind.at("maze"), 400) << "a question waits its turn as long as an answer may take";
  EXPECT_GT(deadlines->request, profile_of(config)->call_seconds);
  config.rollout.episode_seconds = 200;
  EXPECT_THAT(check(config).message(), HasSubstr("env.external_seconds is 200"));
  config.env.external_seconds = 199;
  EXPECT_THAT(check(config).message(), testing::Not(HasSubstr("env.external_seconds")));
}

TEST(RunConfigCheck, numbers_of_messages_alone_may_be_what_a_reward_program_says) {
  RunConfig config;
  config.reward.own.command = "true";
  EXPECT_THAT(check(config).message(), HasSubstr("reward.turns=1"));
  config.reward.turns = 1;
  EXPECT_THAT(check(config).message(), testing::Not(HasSubstr("reward")));
}

}  // namespace
}  // namespace tandem::run
