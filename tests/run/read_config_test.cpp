#include "run/read_config.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tests/run/temporary_run.h"

namespace tandem::run {
namespace {

using testing::HasSubstr;

class ReadConfig : public TemporaryRun {};

TEST_F(ReadConfig, mistakes_across_keys_stand_beside_those_of_one_key_with_their_places) {
  const fs::path file = dir() / "many.yaml";
  ASSERT_TRUE(write_file(file,
                         "model: {path: tiny}\n"
                         "rollout: {max_tokens: 128, max_new_tokens: 256}\n"
                         "run: {stepz: 3}\n"
                         "env: {warm: x, most_warm: 2}\n"
                         "trainer: {moments: bf16, beta2: 0.999}\n"));
  RunConfig config;
  Schema schema = schema_of(config);
  const std::vector<std::string> overrides = {"trainer.minibatches=900"};
  const auto said = read_config(file, overrides, schema, config).message();
  for (const char* part :
       {"many.yaml:2", "rollout.max_new_tokens (256) must be below rollout.max_tokens", "many.yaml:3", "stepz",
        "many.yaml:4", "many.yaml:5", "trainer.beta2 is 0.999", "command line: trainer.minibatches is 900"}) {
    EXPECT_THAT(said, HasSubstr(part));
  }
  EXPECT_THAT(said, testing::Not(HasSubstr("must not be above env.most_warm"))) << "of a value that was not read";
  RunConfig going_on;
  Schema again = schema_of(going_on);
  EXPECT_TRUE(read_config("", overrides, again, going_on, true)) << "the run that goes on may have as many groups";
}

// A misspelt placeholder was a literal text, and environments without feedback left every episode without a hint.
TEST_F(ReadConfig, a_hint_names_its_placeholder_and_has_something_to_stand_for_it) {
  const auto said = [&](std::vector<std::string> overrides) {
    overrides.push_back("model.path=tiny");
    RunConfig config;
    Schema schema = schema_of(config);
    return read_config("", overrides, schema, config).to_string();
  };
  for (const char* misspelt : {"{feedbak}", "{Feedback}", "{ feedback }", "{feedbacks}"}) {
    EXPECT_THAT(
        said({std::string("algorithm.teacher.hint=Again: ") + misspelt}),
        testing::AllOf(HasSubstr(misspelt), HasSubstr("algorithm.teacher.hint"), HasSubstr("write {feedback}")));
  }
  const std::string good = "algorithm.teacher.hint=Again {as JSON: {}}: {feedback}";
  EXPECT_THAT(said({good}), testing::Not(HasSubstr("teacher.hint")));
  EXPECT_THAT(said({R"(algorithm.teacher.hint={"a":{feedback}})"}), testing::Not(HasSubstr("teacher.hint")));
  const std::vector<std::string> external = {"env.external=[\"store=http://127.0.0.1:1\"]", "tasks.kinds=[store]"};
  EXPECT_THAT(said({good, external[0], external[1]}), HasSubstr("no episode would have a hint"));
  EXPECT_THAT(said({good, external[0], "tasks.kinds=[store,echo]"}), testing::Not(HasSubstr("teacher.hint")));
  EXPECT_THAT(said({"algorithm.teacher.hint=Use few words.", external[0], external[1]}),
              testing::Not(HasSubstr("teacher.hint")));
}

// Those that were cut short were missing in the baselines that the trainer makes.
TEST_F(ReadConfig, episodes_that_are_left_out_count_in_the_baseline_or_are_refused) {
  const auto said = [&](const std::string& algorithm) {
    RunConfig config;
    Schema schema = schema_of(config);
    const std::vector<std::string> overrides = {"model.path=tiny", "trainer.leave_out_truncated=true", algorithm};
    return read_config("", overrides, schema, config).to_string();
  };
  for (const char* algorithm : {"algorithm.name=ppo", "algorithm.name=opo", "algorithm.name=gigpo",
                                "algorithm.whiten_advantages=true", "algorithm.kinds=[echo=reinforce++]"})
    EXPECT_THAT(said(algorithm), HasSubstr("trainer.leave_out_truncated")) << algorithm;
  for (const char* algorithm : {"algorithm.name=grpo", "algorithm.name=dapo"})
    EXPECT_THAT(said(algorithm), testing::Not(HasSubstr("trainer.leave_out_truncated"))) << algorithm;
}

// slime 2297: logits were divided by it.
TEST_F(ReadConfig, a_temperature_of_0_is_refused_in_training) {
  for (const char* temperature : {"0", "-1", ".nan", ".inf"}) {
    RunConfig config;
    Schema schema = schema_of(config);
    const std::vector<std::string> overrides = {std::string("rollout.temperature=") + temperature};
    const Status status = read_config("", overrides, schema, config);
    EXPECT_EQ(status.code(), Code::kInvalid) << temperature;
    EXPECT_THAT(status.message(), HasSubstr("rollout.temperature")) << temperature;
  }
}

}  // namespace
}  // namespace tandem::run
