#include "archive/pruning.h"

#include "run/checks.h"
#include "standby/record.h"
#include "tests/archive/runs.h"

namespace tandem::archive {
namespace {

constexpr double kNow = 1'000'000, kDay = 86'400;

std::vector<std::string> names_of(const std::vector<Removal>& removals) {
  std::vector<std::string> names;
  for (const auto& removal : removals) names.push_back(removal.path.filename());
  return names;
}

PruneRule rule_of(std::initializer_list<const char*> keep, std::initializer_list<const char*> drop = {}) {
  PruneRule rule;
  for (const char* text : keep) EXPECT_TRUE(add_keep(rule, text)) << text;
  for (const char* text : drop) EXPECT_TRUE(add_drop(rule, text)) << text;
  return rule;
}

TEST(PruneRuleTest, words_are_read_and_mistakes_are_named_with_what_is_near) {
  PruneRule rule = rule_of({"checkpoints=3", "trajectories=7d", "logs=12h", "runs=10"}, {"failed", "empty"});
  EXPECT_EQ(rule.checkpoints, 3u);
  EXPECT_EQ(rule.trajectories, 7 * kDay);
  EXPECT_EQ(rule.logs, kDay / 2);
  EXPECT_EQ(rule.runs, 10u);
  EXPECT_EQ(rule.drop, (std::set<State>{State::kFailed, State::kEmpty}));
  for (const auto& [text, word] :
       {std::pair("checkpoint=3", "did you mean \"checkpoints\""), std::pair("checkpoints=0", "not a number from 1"),
        std::pair("checkpoints=two", "not a number from 1"), std::pair("checkpoints", "how many"),
        std::pair("logs=7", "is no age"), std::pair("logs=-1d", "is no age"), std::pair("logs=1e300d", "is no age")}) {
    const Status status = add_keep(rule, text);
    EXPECT_EQ(status.code(), Code::kInvalid) << text;
    EXPECT_NE(status.to_string().find(word), std::string::npos) << status.to_string();
  }
  EXPECT_NE(add_drop(rule, "kiled").to_string().find("did you mean \"killed\""), std::string::npos);
  EXPECT_EQ(add_drop(rule, "done").code(), Code::kInvalid);
}

TEST(PruningTest, the_newest_checkpoints_stay_and_those_that_links_name) {
  RecordedRun run;
  run.play(dashboard::learns);
  run.checkpoints({1, 2, 3, 4});
  fs::create_symlink("step_1", run.dir() / "checkpoints" / "best");
  run.end("done");
  const auto removals = removals_of(read_entry(run.dir()), rule_of({"checkpoints=1"}), {}, kNow);
  EXPECT_EQ(names_of(removals), (std::vector<std::string>{"step_2", "step_3"}));
  EXPECT_EQ(removals[0].bytes, 2u);
  EXPECT_TRUE(run.has("checkpoints/step_2")) << "a plan removes nothing";
  const auto removed = prune(run.dir(), rule_of({"checkpoints=1"}), {}, kNow);
  ASSERT_TRUE(removed) << removed.error().to_string();
  EXPECT_EQ(names_of(*removed), names_of(removals));
  EXPECT_TRUE(run.has("checkpoints/step_1") && run.has("checkpoints/step_4"));
  EXPECT_FALSE(run.has("checkpoints/step_2") || run.has("checkpoints/step_3"));
  EXPECT_TRUE(prune(run.dir(), rule_of({"checkpoints=1"}), {}, kNow)->empty()) << "again, and nothing is left to do";
}

TEST(PruningTest, trajectories_and_logs_go_of_runs_that_are_done_and_old) {
  RecordedRun run;
  run.play(dashboard::learns);
  run.put("logs/attempt_1/env-0.log");
  run.put("tb/events");
  const auto rule = rule_of({"trajectories=7d", "logs=7d"});
  for (const char* state : {"failed", "stopping", "running"}) {
    run.end(state, kNow - 8 * kDay);
    EXPECT_TRUE(removals_of(read_entry(run.dir()), rule, {}, kNow).empty()) << "it may go on; " << state;
  }
  run.end("done", kNow - 6 * kDay);
  EXPECT_TRUE(removals_of(read_entry(run.dir()), rule, {}, kNow).empty()) << "too young";
  run.end("done", kNow - 8 * kDay);
  const RunEntry before = read_entry(run.dir());
  ASSERT_TRUE(prune(run.dir(), rule, {}, kNow));
  EXPECT_FALSE(run.has("trajectories") || run.has("logs") || run.has("tb"));
  const RunEntry after = read_entry(run.dir());
  EXPECT_EQ(after.problem, "");
  EXPECT_EQ(after.heldout->value, before.heldout->value) << "what came out is known without them";
}

TEST(PruningTest, a_run_of_a_state_goes_whole_where_it_is_old_enough) {
  RecordedRun run;
  run.play(dashboard::learns);
  run.end("failed", kNow - kDay);
  auto rule = rule_of({}, {"killed", "empty"});
  EXPECT_TRUE(removals_of(read_entry(run.dir()), rule, {}, kNow).empty());
  rule = rule_of({}, {"failed"});
  rule.drop_after = 2 * kDay;
  EXPECT_TRUE(removals_of(read_entry(run.dir()), rule, {}, kNow).empty());
  rule.drop_after = kDay / 2;
  const auto removed = prune(run.dir(), rule, {}, kNow);
  ASSERT_TRUE(removed) << removed.error().to_string();
  ASSERT_EQ(removed->size(), 1u);
  EXPECT_FALSE(fs::exists(run.dir()));
}

TEST(PruningTest, what_another_run_began_with_stays) {
  RecordedRun run, other;
  run.play(dashboard::learns);
  run.checkpoints({1, 2, 3});
  run.end("failed", 0);
  fs::create_directory_symlink(run.dir() / "checkpoints" / "step_1", other.dir() / "model");
  const auto needed = models_of({run.dir(), other.dir()});
  EXPECT_EQ(names_of(removals_of(read_entry(run.dir()), rule_of({"checkpoints=1"}, {"failed"}), needed, kNow)),
            (std::vector<std::string>{"step_2"}));
}

TEST(PruningTest, a_run_that_a_process_has_is_refused_and_whole) {
  RecordedRun run;
  run.play(dashboard::learns);
  run.checkpoints({1, 2});
  run.end("failed", 0);
  const auto claim = run::claim_run_dir(run.dir());
  ASSERT_TRUE(claim);
  const auto removed = prune(run.dir(), rule_of({"checkpoints=1"}, {"failed"}), {}, kNow);
  ASSERT_FALSE(removed);
  EXPECT_NE(removed.error().to_string().find("in use"), std::string::npos);
  EXPECT_TRUE(run.has("checkpoints/step_1"));
  // By its status alone it is on, too.
  run.write("status.json", dump_json(Json{{"state", "running"}, {"pid", ::getpid()}}));
  EXPECT_TRUE(removals_of(read_entry(run.dir()), rule_of({"checkpoints=1"}, {"failed"}), {}, kNow).empty());
}

TEST(PruningTest, a_copy_that_a_standby_keeps_is_left_alone_until_it_was_taken_over) {
  RecordedRun run;
  run.play(dashboard::learns);
  run.checkpoints({1, 2});
  standby::Record record{.run = 1, .name = "elsewhere", .epoch = 1, .holder = {}, .host = {}, .key = {}, .behind = {}};
  ASSERT_TRUE(standby::write_record_of(run.dir(), record));
  const auto rule = rule_of({"checkpoints=1"}, {"killed", "empty"});
  EXPECT_EQ(read_entry(run.dir()).state, State::kCopy);
  const auto removed = prune(run.dir(), rule, {}, kNow);
  ASSERT_TRUE(removed) << removed.error().to_string();
  EXPECT_TRUE(removed->empty());
  EXPECT_TRUE(run.has("checkpoints/step_1"));
  PruneRule other;
  EXPECT_NE(add_drop(other, "copy").to_string().find("may be on elsewhere"), std::string::npos);
  record.is_taken = true;
  ASSERT_TRUE(standby::write_record_of(run.dir(), record));
  EXPECT_EQ(read_entry(run.dir()).state, State::kKilled);
  EXPECT_FALSE(removals_of(read_entry(run.dir()), rule, {}, kNow).empty());
}

TEST(PruningTest, what_a_killed_pruning_left_goes_with_the_next) {
  RecordedRun run;
  run.play(dashboard::learns);
  run.checkpoints({1, 2});
  run.end("done");
  run.put("checkpoints/.step_0.pruned.tmp/weights");
  run.put(".trajectories.pruned.tmp/episodes.log");
  ASSERT_TRUE(prune(run.dir(), rule_of({"checkpoints=2"}), {}, kNow));
  EXPECT_FALSE(run.has("checkpoints/.step_0.pruned.tmp") || run.has(".trajectories.pruned.tmp"));
  EXPECT_TRUE(run.has("checkpoints/step_1"));
}

}  // namespace
}  // namespace tandem::archive
