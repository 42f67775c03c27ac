#include "run/effects.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace tandem::run {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;
using testing::IsEmpty;

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
  EXPECT_THAT(effects_of({"trainer.momentum=0.5", "lora.alpha=3"}),
              ElementsAre(HasSubstr("trainer.momentum"), HasSubstr("lora.alpha")));
  EXPECT_THAT(effects_of({"algorithm.name=dppo", "algorithm.clip_low=0.1"}), ElementsAre(HasSubstr("clip_low")));
  EXPECT_THAT(effects_of({"rollout.workers=1", "rollout.steal_from=3"}),
              ElementsAre(HasSubstr("nobody to steal from")));
}

TEST(Effects, defaults_and_values_that_repeat_them_are_no_news) {
  EXPECT_THAT(effects_of({}), IsEmpty());
  EXPECT_THAT(effects_of({"trainer.momentum=0.95"}), IsEmpty());
}

TEST(RunConfigCheck, mistakes_across_keys_are_told_at_once) {
  RunConfig config;
  config.rollout.max_tokens = 128;
  config.rollout.max_new_tokens = 256;
  config.env.warm = 50;
  config.env.most_warm = 2;
  config.tasks.set_kinds = {"w"};
  config.rollout.temperature = 0.5;
  const Status status = check(config);
  EXPECT_THAT(status.message(), HasSubstr("rollout.max_new_tokens (256)"));
  EXPECT_THAT(status.message(), HasSubstr("env.warm (50)"));
  EXPECT_THAT(status.message(), HasSubstr("tasks.set_kinds needs tasks.path"));
  EXPECT_THAT(status.message(), HasSubstr("rollout.temperature is 0.5"));
}

}  // namespace
}  // namespace tandem::run
