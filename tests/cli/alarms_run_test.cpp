// What a run warns of, by the real binary on the tiny model.
#include <gmock/gmock.h>

#include "tests/cli/run_fixture.h"

namespace tandem {
namespace {

using testing::HasSubstr;
using testing::Not;

class AlarmsRun : public RunTest {};

// No call fits into two tokens: what the model says is cut short, whatever it is.
TEST_F(AlarmsRun, what_goes_wrong_is_said_on_the_screen_in_the_metrics_and_in_the_summary) {
  const fs::path run_dir = root() / "alarmed";
  (void)run({"run.steps=12", "rollout.max_new_tokens=2", "tasks.heldout=0", "tasks.floors=false"}, run_dir);
  const std::string screen = text(output());
  EXPECT_THAT(screen, HasSubstr("alarm at step "));
  EXPECT_THAT(screen, HasSubstr("episodes were cut short by a limit of tokens or turns"));
  EXPECT_THAT(screen, HasSubstr("(rollout.max_new_tokens)"));
  const auto summary = parse_json(text(run_dir / "summary.json"));
  ASSERT_TRUE(summary.has_value()) << text(run_dir / "summary.json");
  Json found;
  for (const Json& alarm : summary->at("alarms")) {
    if (alarm.at("name") == "truncation") found = alarm;
  }
  ASSERT_TRUE(found.is_object()) << summary->at("alarms").dump();
  EXPECT_EQ(found.at("key"), "rollout.max_new_tokens");
  EXPECT_EQ(found.at("steps").size(), 1U) << "it is not said at each step";
  EXPECT_THAT(text(run_dir / "metrics.jsonl"), HasSubstr("\"name\":\"truncation\""));
  EXPECT_THAT(text(run_dir / "report.html"), HasSubstr("were cut short"));
}

// Keys and values of older weights give other logprobs, as was asked for; it is shown, and is no alarm.
TEST_F(AlarmsRun, a_run_that_keeps_keys_and_values_over_new_versions_is_not_told_that_its_devices_disagree) {
  const fs::path run_dir = root() / "keeps";
  ASSERT_EQ(run({"run.steps=8", "rollout.on_new_version=keep", "tasks.heldout=0"}, run_dir), 0) << text(output());
  EXPECT_THAT(text(run_dir / "metrics.jsonl"), Not(HasSubstr("\"name\":\"mismatch\"")));
  EXPECT_THAT(text(output()), Not(HasSubstr("trainer and engines disagree")));
}

}  // namespace
}  // namespace tandem
