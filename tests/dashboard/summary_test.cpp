#include "dashboard/summary.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "dashboard/statistics.h"
#include "synthetic_run.h"

namespace tandem::dashboard {
namespace {

Result<Json> summarise(const fs::path& run_dir, rollout::RunPlan plan) {
  return dashboard::summarise(TRY(read_run(run_dir, std::move(plan))));
}

TEST(Statistics, a_rate_counts_samples_and_an_interval_resamples_tasks) {
  const std::vector<TaskScore> tasks = {{1, 4}, {4, 4}, {0, 0}};
  const auto rate = pass_rate(tasks);
  ASSERT_TRUE(rate);
  EXPECT_DOUBLE_EQ(rate->value, 5.0 / 8);
  // Two tasks, resampled whole: both the first, one of each, both the second.
  EXPECT_DOUBLE_EQ(rate->low, 0.25);
  EXPECT_DOUBLE_EQ(rate->high, 1);
  EXPECT_FALSE(pass_rate(std::vector<TaskScore>{{0, 0}}));
}

TEST(Statistics, an_interval_of_many_tasks_is_as_wide_as_theory_says) {
  std::vector<TaskScore> tasks;
  for (int i = 0; i < 400; ++i) tasks.push_back({i % 2 == 0 ? 1.0 : 0.0, 1});
  const auto rate = pass_rate(tasks);
  EXPECT_NEAR(rate->low, 0.5 - 1.96 * 0.5 / 20, 0.01);
  EXPECT_NEAR(rate->high, 0.5 + 1.96 * 0.5 / 20, 0.01);
}

TEST(Statistics, a_gain_is_paired_by_task) {
  const std::vector<TaskScore> before = {{0, 2}, {1, 2}, {1, 1}}, after = {{2, 2}, {1, 2}, {0, 0}};
  const auto gain = paired_gain(before, after);
  ASSERT_TRUE(gain);
  EXPECT_DOUBLE_EQ(gain->value, 0.5);
  EXPECT_DOUBLE_EQ(gain->low, 0);
  EXPECT_DOUBLE_EQ(gain->high, 1);
}

TEST(MetricsFollower, gives_every_line_once_and_a_half_written_one_later) {
  SyntheticRun run(two_kinds());
  MetricsFollower follower(run.dir());
  EXPECT_TRUE(follower.next().empty());
  run.write("metrics.jsonl", "{\"step\":1}\n{\"step\":");
  EXPECT_EQ(follower.next(), std::vector<Json>{(Json{{"step", 1}})});
  EXPECT_TRUE(follower.next().empty());
  run.write("metrics.jsonl", "{\"step\":1}\n{\"step\":2}\nnonsense\n{\"step\":3}\n");
  EXPECT_EQ(follower.next(), (std::vector<Json>{{{"step", 2}}, {{"step", 3}}}));
}

TEST(Summary, held_out_rates_and_gains_are_those_of_the_books) {
  SyntheticRun run(two_kinds());
  run.play(learns);
  run.write("floors.json", R"({"nothing": 0.0, "regex_script": 0.25})");
  const auto s = summarise(run.dir(), run.plan());
  ASSERT_TRUE(s) << s.error().to_string();
  const Json& heldout = (*s)["heldout"];
  EXPECT_DOUBLE_EQ(heldout["before"]["pass_rate"].get<double>(), 0.25);
  EXPECT_EQ(heldout["before"]["n_tasks"], 4);
  EXPECT_EQ(heldout["before"]["n_samples"], 8);
  EXPECT_DOUBLE_EQ(heldout["after"]["pass_rate"].get<double>(), 0.75);
  EXPECT_DOUBLE_EQ(heldout["gain"]["points"].get<double>(), 0.5);
  EXPECT_LE(heldout["gain"]["ci95"][0].get<double>(), 0.5);
  EXPECT_GE(heldout["gain"]["ci95"][1].get<double>(), 0.5);
  EXPECT_EQ(heldout["greedy"]["before"]["n_samples"], 4);
  EXPECT_DOUBLE_EQ(heldout["greedy"]["gain"]["points"].get<double>(), 0.5);
  EXPECT_EQ(heldout["kinds"]["find"],
            (Json{{"before", 0.5}, {"after", 1.0}, {"greedy_before", 0.5}, {"greedy_after", 1.0}}));
  EXPECT_EQ(heldout["kinds"]["set"]["after"], 0.5);
  EXPECT_EQ(heldout["floors"]["regex_script"], 0.25);
}

TEST(Summary, the_books_balance_and_outcomes_sum_to_what_is_closed) {
  SyntheticRun run(two_kinds());
  run.play(learns);
  const auto s = summarise(run.dir(), run.plan());
  ASSERT_TRUE(s) << s.error().to_string();
  const Json& episodes = (*s)["episodes"];
  EXPECT_EQ(episodes["admitted"], 2 * 4 * 3 + 2 * 2 * 4);  // before and after, then two steps of two groups of four
  EXPECT_EQ(episodes["trained"], 16);
  EXPECT_EQ(episodes["dropped"], (Json{{"heldout", 24}}));
  EXPECT_EQ(episodes["in_flight"], 0);
  EXPECT_EQ((*s)["outcomes"]["completed"], 40);
  EXPECT_EQ((*s)["tokens"]["prompt"], 400);
  EXPECT_EQ((*s)["tokens"]["generated"], 80);
  EXPECT_EQ((*s)["steals"], 40);
  EXPECT_EQ((*s)["steps"], 2);
  EXPECT_EQ((*s)["numerics_id"], "numerics-1");
}

TEST(Summary, of_several_lines_of_one_step_the_last_counts) {
  SyntheticRun run(two_kinds());
  run.play(learns);
  run.write(
      "metrics.jsonl",
      R"({"step":1,"time":100,"trained_tokens":10,"compared_tokens":4,"max_abs_logprob_diff":0.5})"
      "\n"
      R"({"step":1,"time":103,"trained_tokens":16,"compared_tokens":8,"max_abs_logprob_diff":0.0,"trainer":{"train_seconds":2,"idle_seconds":2,"wall_seconds":4,"cpu_seconds":4,"sent_bytes":5,"full_bytes":10},)"
      R"("roles":{"rollout-0":{"engine_steps":5,"cpu_seconds":3,"forward_seconds":3,"sample_seconds":1,"idle_seconds":1,"version":0,"received_bytes":7}}})"
      "\n"
      R"({"step":2,"time":113,"trained_tokens":16,"compared_tokens":8,"max_abs_logprob_diff":0.0,"trainer":{"train_seconds":5,"idle_seconds":5,"wall_seconds":10,"cpu_seconds":12,"sent_bytes":9,"full_bytes":10},)"
      R"("roles":{"rollout-0":{"engine_steps":2,"cpu_seconds":1,"forward_seconds":2,"sample_seconds":2,"idle_seconds":1,"version":1,"received_bytes":9,"max_pause_ms":4}}})"
      "\n"
      R"({"step":3,"time":1)");  // cut short by a crash
  run.write("supervisor.json", R"({"cores":2})");
  const auto s = summarise(run.dir(), run.plan());
  ASSERT_TRUE(s) << s.error().to_string();
  EXPECT_EQ((*s)["tokens"]["trained"], 32);
  EXPECT_EQ((*s)["logprob"], (Json{{"max_abs_diff", 0.0}, {"tokens_compared", 16}}));
  EXPECT_EQ((*s)["wall_seconds"], 10.0);
  // The engine started again between the steps: forward went from 3 to 2, so 5 in all.
  EXPECT_EQ((*s)["seconds"]["rollout-0"]["generate"], 3.0 + 2 + 2);
  EXPECT_EQ((*s)["seconds"]["trainer"]["train"], 5.0);
  EXPECT_EQ((*s)["weights"]["versions"], 1);
  EXPECT_EQ((*s)["weights"]["sent_bytes"], 9);
  EXPECT_EQ((*s)["weights"]["full_bytes"], 10);
  EXPECT_EQ((*s)["weights"]["max_pause_ms"], 4.0);
  EXPECT_DOUBLE_EQ((*s)["utilisation"]["trainer"].get<double>(), 0.5);
  EXPECT_DOUBLE_EQ((*s)["utilisation"]["cores"].get<double>(), (12.0 + 3 + 1) / (2 * 10));
}

TEST(Summary, what_the_supervisor_noted_is_merged_in) {
  SyntheticRun run(two_kinds());
  run.play(learns);
  run.write("supervisor.json",
            R"({"exit":0,"wall_seconds":61.5,"restarts":{"trainer":1},"run_id":"tiny-1","weights":{"full_bytes":99}})");
  const auto s = summarise(run.dir(), run.plan());
  ASSERT_TRUE(s) << s.error().to_string();
  EXPECT_EQ((*s)["exit"], 0);
  EXPECT_EQ((*s)["wall_seconds"], 61.5);
  EXPECT_EQ((*s)["run_id"], "tiny-1");
  EXPECT_EQ((*s)["restarts"]["trainer"], 1);
  EXPECT_EQ((*s)["weights"]["full_bytes"], 99);
  EXPECT_TRUE((*s)["weights"].contains("versions"));
}

TEST(Summary, what_was_done_after_the_last_step_comes_from_the_last_report) {
  SyntheticRun run(two_kinds());
  run.play(learns);
  run.write(
      "metrics.jsonl",
      R"({"step":1,"time":5,"trainer":{"train_seconds":2,"idle_seconds":1},"roles":{"rollout-0":{"engine_steps":1,"forward_seconds":3}}})"
      "\n");
  run.write("supervisor.json",
            R"({"exit":0,"last_report":{"step":2,"roles":{)"
            R"("trainer-0":{"role":"trainer","metrics":{"train_seconds":4,"idle_seconds":2}},)"
            R"("rollout-0":{"role":"rollout","metrics":{"engine_steps":9,"forward_seconds":7,"idle_seconds":1}},)"
            R"("env-0":{"role":"env","metrics":null}}}})");
  const auto s = summarise(run.dir(), run.plan());
  ASSERT_TRUE(s) << s.error().to_string();
  EXPECT_EQ((*s)["seconds"]["rollout-0"]["generate"], 7.0);
  EXPECT_EQ((*s)["seconds"]["trainer"]["train"], 4.0);
  EXPECT_FALSE(s->contains("last_report"));
}

TEST(Summary, a_last_report_from_before_the_last_step_counts_nothing_twice) {
  SyntheticRun run(two_kinds());
  run.play(learns);
  run.write(
      "metrics.jsonl",
      R"({"step":2,"time":5,"trainer":{"train_seconds":4,"sent_bytes":500},"roles":{"relay-0":{"sent_bytes":70},"rollout-0":{"forward_seconds":3}}})"
      "\n");
  run.write("supervisor.json", R"({"exit":0,"last_report":{"step":2,"roles":{)"
                               R"("trainer-0":{"role":"trainer","metrics":{"train_seconds":3.5,"sent_bytes":400}},)"
                               R"("relay-0":{"role":"relay","metrics":{"sent_bytes":60}},)"
                               R"("rollout-0":{"role":"rollout","metrics":{"forward_seconds":7}}}}})");
  const auto s = summarise(run.dir(), run.plan());
  ASSERT_TRUE(s) << s.error().to_string();
  EXPECT_EQ((*s)["seconds"]["trainer"]["train"], 4.0);
  EXPECT_EQ((*s)["weights"]["sent_bytes"], 570);
  EXPECT_EQ((*s)["seconds"]["rollout-0"]["generate"], 7.0);
}

TEST(Summary, what_a_killed_run_left_is_summarised_too) {
  SyntheticRun run(two_kinds());
  run.play(learns, 5);
  const auto s = summarise(run.dir(), run.plan());
  ASSERT_TRUE(s) << s.error().to_string();
  const Json& episodes = (*s)["episodes"];
  EXPECT_EQ(episodes["admitted"], 12);
  EXPECT_EQ(episodes["in_flight"], 7);
  EXPECT_EQ((*s)["outcomes"]["completed"], 5);
  EXPECT_TRUE((*s)["heldout"]["after"].is_null());
  EXPECT_TRUE((*s)["heldout"]["gain"].is_null());
}

TEST(Summary, files_of_the_supervisor_may_say_their_format_and_are_refused_by_that_of_a_later_version) {
  SyntheticRun run({.steps = 1, .groups_per_step = 1, .group_size = 2, .kinds = {"echo"}, .heldout_tasks = 0});
  run.write("floors.json", R"({"format": 1, "nothing": 0.5})");
  EXPECT_EQ(read_run(run.dir(), run.plan())->floors, (Json{{"nothing", 0.5}}));
  for (const char* name : {"status.json", "supervisor.json", "floors.json", "failures.json"}) {
    run.write(name, R"({"format": 9})");
    const auto refused = read_run(run.dir(), run.plan());
    ASSERT_FALSE(refused) << name;
    EXPECT_THAT(refused.error().to_string(),
                testing::HasSubstr(std::string(name) + ": is of format 9; this program reads"));
    fs::remove(run.dir() / name);
  }
}

TEST(Summary, a_folder_that_is_no_run_is_refused_by_name) {
  const auto s = summarise("/proc", two_kinds());
  ASSERT_FALSE(s);
  EXPECT_EQ(s.error().code(), Code::kInvalid);
  EXPECT_THAT(s.error().message(), testing::HasSubstr("/proc"));
}

TEST(Summary, a_damaged_line_in_the_middle_of_the_metrics_is_named) {
  SyntheticRun run(two_kinds());
  run.write("metrics.jsonl", "{\"step\":1}\n{\"step\":\n{\"step\":3}\n");
  const auto s = summarise(run.dir(), run.plan());
  ASSERT_FALSE(s);
  EXPECT_THAT(s.error().message(), testing::HasSubstr("metrics.jsonl:2"));
}

}  // namespace
}  // namespace tandem::dashboard
