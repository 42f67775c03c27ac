#include <gmock/gmock.h>

#include "eval/gates.h"
#include "eval/history.h"
#include "eval/outcome_files.h"
#include "tests/eval/night_fixture.h"

namespace tandem::eval {
namespace {

using testing::AnyOf;
using testing::ElementsAre;
using testing::HasSubstr;
using testing::Not;

void lose_verdict(Night& night, size_t task, size_t sample, rollout::Outcome outcome = rollout::Outcome::kInfraError) {
  auto& lost = night.tasks[task].samples[sample];
  lost.outcome = outcome;
  lost.reward = 0;
  lost.why = "the server is gone";
}

TEST(Night, rates_count_samples_with_a_verdict_and_nothing_else) {
  auto night = night_with({4, 2, 0});
  lose_verdict(night, 2, 3);
  lose_verdict(night, 2, 2, rollout::Outcome::kTimeout);
  const auto summary = summarize(night, {});
  EXPECT_EQ(summary.wanted, 12u);
  EXPECT_EQ(summary.verdicts, 10u);
  EXPECT_DOUBLE_EQ(summary.pass_rate->value, 0.6);
  EXPECT_DOUBLE_EQ(summary.error_share, 2.0 / 12);
  EXPECT_EQ(summary.outcomes.at("infra_error"), 1u);
  EXPECT_EQ(summary.outcomes.at("timeout"), 1u);
  EXPECT_DOUBLE_EQ(summary.pass_at.at(1), (1 + 0.5 + 0) / 3);
  EXPECT_DOUBLE_EQ(summary.pass_at.at(4), 1);  // of the two tasks that have four
  EXPECT_DOUBLE_EQ(*summary.cost_of_pass, 12 * 120 / 6.0) << "without prices a token costs 1";
  EXPECT_DOUBLE_EQ(summarize(night, {.sample_hour = 3600}).cost, 12 * 2.0);
}

TEST(Night, results_are_read_as_they_were_written) {
  auto night = night_with({1, 3});
  lose_verdict(night, 0, 2);
  night.tasks[1].samples[0].flags = {"tests_edited: turn 1, rm tests"};
  night.started = 1000.25;
  const auto again = night_from_json(to_json(night));
  ASSERT_TRUE(again) << again.error().to_string();
  EXPECT_EQ(to_json(*again), to_json(night));
  EXPECT_FALSE(night_from_json(Json::object()));
}

TEST(Night, a_comparison_names_the_tasks_that_fell_with_the_largest_loss_first) {
  auto before = night_with({4, 4, 4, 4, 4, 4, 2, 2}), after = night_with({4, 3, 0, 2, 1, 2, 1, 3});
  const auto found = compare(before, after, 0.95);
  EXPECT_THAT(found.regressed, ElementsAre("kind/task-02", "kind/task-04", "kind/task-03", "kind/task-05",
                                           "kind/task-01", "kind/task-06"));
  EXPECT_THAT(found.improved, ElementsAre("kind/task-07"));
  EXPECT_TRUE(found.is_regression());
  EXPECT_DOUBLE_EQ(found.difference->points, -(1 + 4 + 2 + 3 + 2 + 1 - 1) / 32.0);
  EXPECT_EQ(found.pairs.lost, 13);
  EXPECT_EQ(found.pairs.won, 1);
  EXPECT_THAT(verdict_of(found), HasSubstr("worse by 37.5 points"));
}

TEST(Night, tasks_that_are_others_than_they_were_are_not_compared_but_named) {
  auto before = night_with({4, 4, 4}), after = night_with({0, 4, 4});
  after.tasks[0].digest = "changed";
  before.tasks.push_back({"kind/old", "kind", "same", {}});
  after.tasks.push_back({"kind/new", "kind", "same", {}});
  const auto found = compare(before, after, 0.95);
  EXPECT_EQ(found.difference->tasks, 2);
  EXPECT_EQ(found.difference->points, 0);
  EXPECT_THAT(found.other_tasks, ElementsAre("kind/task-00 was changed", "kind/new is new", "kind/old is gone"));
}

TEST(Night, a_comparison_that_decides_nothing_says_what_it_would_have_seen) {
  const auto found = compare(night_with({4, 3, 2, 1}), night_with({3, 4, 2, 1}), 0.95);
  EXPECT_FALSE(found.is_regression());
  EXPECT_THAT(verdict_of(found), HasSubstr("points or more would have been seen"));
}

TEST(Gates, a_loss_counts_where_it_is_sure_and_beyond_what_is_tolerated) {
  const auto before = night_with(std::vector<int>(20, 4)), after = night_with(std::vector<int>(20, 3));
  const auto comparison = compare(before, after, 0.95);
  const auto summary = summarize(after, {});
  const auto code = [&](double tolerated) {
    return exit_code_of(check_gates({.max_regression_points = tolerated}, summary, &comparison, nullptr));
  };
  EXPECT_EQ(code(0), kRegression);
  EXPECT_EQ(code(0.2), kRegression);
  EXPECT_EQ(code(0.3), kDone);
  EXPECT_EQ(exit_code_of(check_gates({}, summary, nullptr, nullptr)), kDone);
  EXPECT_EQ(exit_code_of(check_gates({}, summary, nullptr, &comparison)), kRegression) << "against the blessed one";
}

TEST(Gates, each_has_its_value_and_its_limit) {
  const auto night = night_with({4, 2});
  const auto summary = summarize(night, {});
  const auto slow = night_with({4, 2}, 4, 6);
  const auto comparison = compare(night, slow, 0.95);
  const Gates gates{.min_pass_rate = 0.8, .max_slowdown = 1.0, .max_cost = 1.0, .no_cheats = true};
  std::map<std::string, GateResult> by_name;
  for (const auto& gate : check_gates(gates, summary, &comparison, nullptr)) by_name[gate.name] = gate;
  EXPECT_FALSE(by_name.at("min_pass_rate").passed);
  EXPECT_DOUBLE_EQ(*by_name.at("min_pass_rate").value, 0.75);
  EXPECT_FALSE(by_name.at("max_slowdown").passed);
  EXPECT_DOUBLE_EQ(*by_name.at("max_slowdown").value, 2);
  EXPECT_FALSE(by_name.at("max_cost").passed);
  EXPECT_TRUE(by_name.at("no_cheats").passed);
  EXPECT_TRUE(by_name.at("max_error_share").passed);
}

TEST(Gates, too_many_samples_without_a_verdict_are_not_a_regression) {
  auto night = night_with({4, 4});
  for (size_t i = 0; i < 4; ++i) lose_verdict(night, 1, i);
  const auto gates = check_gates({.min_pass_rate = 1.0}, summarize(night, {}), nullptr, nullptr);
  EXPECT_EQ(exit_code_of(gates), kIncomplete);
  auto none = night_with({4});
  for (size_t i = 0; i < 4; ++i) lose_verdict(none, 0, i);
  EXPECT_EQ(exit_code_of(check_gates({.min_pass_rate = 0.5}, summarize(none, {}), nullptr, nullptr)), kIncomplete);
}

Verdict verdict_for(Night night, const Night* before = nullptr) {
  Verdict verdict{.night = std::move(night)};
  verdict.summary = summarize(verdict.night, {});
  if (before != nullptr) verdict.against = compare(*before, verdict.night, 0.95);
  verdict.gates = check_gates({}, verdict.summary, verdict.against ? &*verdict.against : nullptr, nullptr);
  verdict.code = exit_code_of(verdict.gates);
  verdict.history = {history_line("one", verdict.night, verdict.summary, verdict.against, verdict.code)};
  return verdict;
}

TEST(Junit, a_task_fails_where_no_sample_passed_and_is_an_error_where_none_has_a_verdict) {
  auto night = night_with({4, 0, 0, 2}, 4);
  for (size_t i = 0; i < 4; ++i) lose_verdict(night, 2, i);
  night.tasks[1].samples[0].why = "a < b & \"c\" \x01\xEF\xBF\xBE";
  const auto xml = junit_xml(verdict_for(night));
  EXPECT_THAT(xml, HasSubstr("tests=\"4\" failures=\"1\" errors=\"1\""));
  EXPECT_THAT(xml, HasSubstr("<error type=\"no_verdict\" message=\"the server is gone\">"));
  EXPECT_THAT(xml, HasSubstr("<failure type=\"not_passed\" message=\"none of 4 samples passed\">"));
  EXPECT_THAT(xml, HasSubstr("a &lt; b &amp; &#34;c&#34;"));
  EXPECT_THAT(xml, Not(HasSubstr("\x01")));
  EXPECT_THAT(xml, Not(HasSubstr("\xEF\xBF\xBE")));
  EXPECT_THAT(xml, HasSubstr("<property name=\"pass_rate\" value=\"0.5\"/>"));
}

TEST(Reports, regressions_stand_in_all_of_them_and_words_of_a_model_do_no_harm) {
  const auto before = night_with(std::vector<int>(8, 4));
  auto after = night_with({0, 0, 0, 1, 4, 4, 0, 0});
  after.tasks[0].samples[0].why = "<script>alert(1)</script> | cell";
  after.tasks[1].samples[0].flags = {"reward_written: turn 1, echo"};
  const auto verdict = verdict_for(after, &before);
  EXPECT_EQ(verdict.code, kRegression);
  const auto page = report_page(verdict, [](const SampleResult&) {
    return Json{{"steps", Json::array({{{"source", "agent"}, {"message", "<b>hello</b>"}}})}};
  });
  const auto markdown = report_markdown(verdict);
  const auto results = results_json(verdict);
  for (const auto& name : verdict.against->regressed) {
    EXPECT_THAT(page, HasSubstr(name));
    EXPECT_THAT(markdown, HasSubstr(name));
  }
  EXPECT_EQ(results.at("against").at("regressed").size(), 6u);
  EXPECT_THAT(page, Not(HasSubstr("<script>alert")));
  EXPECT_THAT(page, HasSubstr("&lt;b&gt;hello&lt;/b&gt;"));
  for (const auto& output : {page, markdown, junit_xml(verdict), dump_json(results)})
    EXPECT_THAT(output, AnyOf(HasSubstr("reward_written"), HasSubstr("reward\\_written")));
  EXPECT_THAT(markdown, HasSubstr("**failed**"));
  EXPECT_THAT(junit_xml(verdict), HasSubstr("<property name=\"regressed\" value=\"true\"/>"));
}

TEST(History, a_task_whose_results_come_and_go_is_flaky_and_counts_half) {
  std::vector<HistoryLine> lines;
  const std::vector<int> flips = {4, 0, 4, 0, 4};
  for (const int passed : flips) {
    const auto night = night_with({passed, 4, 3});
    lines.push_back(history_line("n", night, summarize(night, {}), {}, 0));
  }
  EXPECT_EQ(flaky_tasks(lines), std::set<std::string>{"kind/task-00"});
  const auto again = history_line_from_json(to_json(lines[1]));
  ASSERT_TRUE(again) << again.error().to_string();
  EXPECT_EQ(to_json(*again), to_json(lines[1]));

  const auto found = compare(night_with({4, 4, 3}), night_with({0, 4, 3}), 0.95, flaky_tasks(lines));
  EXPECT_DOUBLE_EQ(found.difference->points, -0.5 / 2.5);
  EXPECT_THAT(found.flaky, ElementsAre("kind/task-00"));
}

TEST(History, a_task_that_fell_once_is_not_flaky) {
  std::vector<HistoryLine> lines;
  for (const int passed : {4, 4, 0, 0, 0, 1, 0}) {
    const auto night = night_with({passed});
    lines.push_back(history_line("n", night, summarize(night, {}), {}, 0));
  }
  EXPECT_TRUE(flaky_tasks(lines).empty());
}

// Three tasks of two samples, each of which has used 2 core-seconds of the model and 1 of sandboxes; two are solved.
Night night_with_use(const ComputeUse& use) {
  Night night = night_with({2, 1, 0}, 2);
  for (auto& task : night.tasks) {
    for (auto& sample : task.samples) sample.use = use;
  }
  return night;
}

TEST(SolvedTasks, what_one_takes_is_all_that_was_used_over_the_tasks_that_were_solved) {
  const auto summary = summarize(night_with_use({1, 2, 0}), {});
  EXPECT_EQ(summary.solved, 2u);
  const Json json = to_json(summary);
  EXPECT_EQ(json["compute"],
            (Json{{"sandbox_core_seconds", 6.0}, {"model_core_seconds", 12.0}, {"model_gpu_seconds", 0.0}}));
  const Json& each = json["per_solved_task"];
  EXPECT_EQ(each["core_seconds"], 9.0);
  EXPECT_EQ(each["gpu_seconds"], 0.0);
  EXPECT_EQ(each["tokens"], 360.0);
  EXPECT_EQ(each["seconds"], 6.0);
  EXPECT_EQ(solved_task_text(summary), "9 core-seconds (6 of the model, 3 of sandboxes), 360 tokens, 6.0 s of samples");
}

TEST(SolvedTasks, a_model_on_a_gpu_and_one_behind_a_server_say_what_is_known) {
  EXPECT_THAT(solved_task_text(summarize(night_with_use({1, 0, 0.5}), {})),
              testing::StartsWith("1.5 GPU-seconds, 3 core-seconds (0 of the model, 3 of sandboxes)"));
  const auto summary = summarize(night_with_use({1, {}, {}}), {});
  EXPECT_THAT(solved_task_text(summary),
              testing::StartsWith("3 core-seconds of sandboxes (the model is behind a server: not known)"));
  const Json json = to_json(summary);
  EXPECT_TRUE(json["per_solved_task"]["core_seconds"].is_null());
  EXPECT_TRUE(json["compute"]["model_gpu_seconds"].is_null());
  EXPECT_EQ(json["compute"]["sandbox_core_seconds"], 6.0);
}

TEST(SolvedTasks, where_none_is_solved_or_nothing_was_counted_no_figure_is_made_up) {
  const auto none = summarize(night_with({0, 0}), {});
  EXPECT_EQ(solved_task_text(none), "no task was solved");
  EXPECT_TRUE(to_json(none)["per_solved_task"]["tokens"].is_null());
  // Samples of a version that did not count.
  EXPECT_THAT(solved_task_text(summarize(night_with({1}), {})), testing::StartsWith("core-seconds not known"));
}

TEST(SolvedTasks, a_sample_keeps_what_it_has_used) {
  auto sample = sample_of("a", 0, true);
  sample.use = {0.25, std::nullopt, 3};
  const auto again = sample_from_json(to_json(sample));
  ASSERT_TRUE(again);
  EXPECT_EQ(*again, sample);
  Json older = to_json(sample);
  for (const char* key : {"sandbox_core_seconds", "model_core_seconds", "model_gpu_seconds"}) older.erase(key);
  EXPECT_EQ(sample_from_json(older)->use, ComputeUse());
  older["model_core_seconds"] = -1;
  EXPECT_FALSE(sample_from_json(older));
}

}  // namespace
}  // namespace tandem::eval
