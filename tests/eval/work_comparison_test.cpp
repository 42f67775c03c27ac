// Nights compared by how the work was done, and gates on it.
#include "eval/work_comparison.h"

#include <gmock/gmock.h>

#include <algorithm>
#include <cmath>

#include "eval/outcome_files.h"
#include "tests/eval/night_fixture.h"

namespace tandem::eval {
namespace {

using testing::AllOf;
using testing::Contains;
using testing::ElementsAre;
using testing::HasSubstr;
using testing::Not;
using testing::StartsWith;

// Every sample passed and has changed so many lines, a file each 100 of them.
Night night_of_lines(const std::vector<uint64_t>& lines_of_task, int samples = 2) {
  Night night = night_with(std::vector<int>(lines_of_task.size(), samples), samples);
  for (size_t i = 0; i < lines_of_task.size(); ++i) {
    for (auto& sample : night.tasks[i].samples)
      sample.diff = {.files = 1, .lines_added = lines_of_task[i], .linted_files = 1};
  }
  return night;
}

template <typename F>
Night with_each_sample(Night night, const F& change) {
  for (auto& task : night.tasks) {
    for (auto& sample : task.samples) change(sample);
  }
  return night;
}

const FigureComparison& figure_of(const std::vector<FigureComparison>& figures, std::string_view name) {
  return *std::find_if(figures.begin(), figures.end(), [&](const auto& figure) { return figure.name == name; });
}

GateResult gate_of(const Gates& gates, const std::string& name, const Night& before, const Night& after,
                   double confidence = 0.95) {
  const auto comparison = compare(before, after, confidence);
  for (const auto& gate : check_gates(gates, summarize(after, {}), &comparison, &comparison)) {
    if (gate.name == name) return gate;
  }
  ADD_FAILURE() << "no gate " << name;
  return {};
}

// No number of it is NaN or infinite: the writer would make null of it.
void expect_finite(const Json& json) {
  if (json.is_number()) {
    EXPECT_TRUE(std::isfinite(json.get<double>()));
  } else if (json.is_array() || json.is_object()) {
    for (const Json& item : json) expect_finite(item);
  }
}

TEST(WorkComparison, sizes_grow_by_the_ratio_of_geometric_means_over_tasks) {
  const auto before = night_of_lines({9, 19, 39, 9, 9, 9, 9}), after = night_of_lines({19, 39, 79, 19, 19, 19, 19});
  const auto work = compare(before, after, 0.95).work;
  const auto& lines = figure_of(work.all, "lines_changed");
  ASSERT_TRUE(lines.change);
  EXPECT_NEAR(lines.change->change, 1, 1e-9) << "of 1 + lines";
  EXPECT_NEAR(lines.change->low, 1, 1e-9);
  EXPECT_NEAR(lines.change->high, 1, 1e-9);
  EXPECT_NEAR((1 + lines.change->after) / (1 + lines.change->before), 2, 1e-9);
  EXPECT_EQ(lines.change->tasks, 7);
  EXPECT_EQ(lines.change->samples_before, 14u);
  EXPECT_TRUE(lines.change->rose());
  EXPECT_FALSE(figure_of(work.all, "files").change->rose());
  EXPECT_TRUE(figure_of(compare(after, before, 0.95).work.all, "lines_changed").change->fell());
}

TEST(WorkComparison, the_interval_is_that_of_the_bootstrap_of_pass_rates) {
  std::vector<uint64_t> then, now;
  std::vector<PairedRate> lints;
  for (uint64_t i = 0; i < 12; ++i) {
    then.push_back(10 + i);
    now.push_back(10 + (i * 7) % 12);
    lints.push_back({static_cast<double>(i % 3), static_cast<double>(i % 5)});
  }
  Night before = night_of_lines(then), after = night_of_lines(now);
  for (size_t i = 0; i < 12; ++i) {
    for (auto& sample : before.tasks[i].samples) sample.diff->new_lints = i % 3;
    for (auto& sample : after.tasks[i].samples) sample.diff->new_lints = i % 5;
  }
  const auto expected = paired_difference(lints, 0.9);
  const auto work = compare(before, after, 0.9).work;
  const auto& found = figure_of(work.all, "new_lints").change;
  ASSERT_TRUE(found && expected);
  EXPECT_EQ(found->change, expected->points);
  EXPECT_EQ(found->low, expected->low);
  EXPECT_EQ(found->high, expected->high);
  EXPECT_EQ(found->low95, expected->low95);
  EXPECT_EQ(found->high95, expected->high95);
}

TEST(WorkComparison, one_sample_of_a_million_lines_does_not_decide_a_night) {
  const std::vector<uint64_t> usual(20, 10);
  auto before = night_of_lines(usual), after = night_of_lines(usual);
  after.tasks[3].samples[0].diff->lines_added = 1'000'000;
  const auto one = compare(before, after, 0.95).work;
  EXPECT_FALSE(figure_of(one.all, "lines_changed").change->rose());
  EXPECT_LT(figure_of(one.all, "lines_changed").change->change, 0.5);
  // Nor does it hide that all others grew by half.
  auto grown = night_of_lines(std::vector<uint64_t>(20, 16));
  before.tasks[3].samples[0].diff->lines_added = 1'000'000;
  const auto hidden = compare(before, grown, 0.95).work;
  EXPECT_GT(figure_of(hidden.all, "lines_changed").change->change, 0);
}

TEST(WorkComparison, equal_nights_differ_in_nothing_whatever_the_order_of_their_samples) {
  auto before = night_of_lines(std::vector<uint64_t>(10, 0), 3), after = before;
  for (size_t i = 0; i < 10; ++i) {
    for (size_t s = 0; s < 3; ++s) {
      before.tasks[i].samples[s].diff->lines_added = 1 + s * 7 + i;
      after.tasks[i].samples[2 - s].diff->lines_added = 1 + s * 7 + i;
    }
  }
  const auto work = compare(before, after, 0.95).work;
  for (const auto* figures : {&work.all, &work.passed}) {
    for (const auto& figure : *figures) {
      if (!figure.change) continue;
      EXPECT_EQ(figure.change->change, 0) << figure.name;
      EXPECT_FALSE(figure.change->rose() || figure.change->fell()) << figure.name;
    }
  }
  EXPECT_THAT(work_lines(work)[0], StartsWith("work: 0 of "));
}

TEST(WorkComparison, few_tasks_are_never_sure) {
  const auto sure_with = [](size_t tasks, double confidence) {
    const auto work = compare(night_of_lines(std::vector<uint64_t>(tasks, 1)),
                              night_of_lines(std::vector<uint64_t>(tasks, 1000)), confidence)
                          .work;
    return figure_of(work.all, "lines_changed").change->rose();
  };
  EXPECT_FALSE(sure_with(1, 0.95));
  EXPECT_FALSE(sure_with(5, 0.95)) << "in one of 16 nights, five equal tasks point the same way by chance";
  EXPECT_TRUE(sure_with(6, 0.95));
  EXPECT_FALSE(sure_with(6, 0.99));
  const auto gate = gate_of({.max_growth = 0.5}, "max_growth", night_of_lines({1}), night_of_lines({1000}));
  EXPECT_TRUE(gate.passed);
  EXPECT_THAT(gate.says, AllOf(HasSubstr("too few tasks to be sure"), HasSubstr("1 task")));
}

TEST(WorkComparison, nights_without_a_common_task_compare_nothing_and_say_so) {
  const auto before = night_of_lines(std::vector<uint64_t>(8, 5));
  auto after = night_of_lines(std::vector<uint64_t>(8, 50));
  for (auto& task : after.tasks) task.digest = "changed";
  const auto comparison = compare(before, after, 0.95);
  for (const auto& figure : comparison.work.all) EXPECT_FALSE(figure.change) << figure.name;
  EXPECT_THAT(work_lines(comparison.work), ElementsAre("work: nothing to compare"));
  EXPECT_TRUE(to_json(comparison).at("work").at("all").at("lines_changed").is_null());
  const auto gate = gate_of({.max_growth = 0}, "max_growth", before, after);
  EXPECT_TRUE(gate.passed);
  EXPECT_FALSE(gate.value);
  EXPECT_THAT(gate.says, HasSubstr("nothing to compare"));
}

TEST(WorkComparison, only_samples_with_a_verdict_that_have_the_figure_count) {
  auto before = night_of_lines(std::vector<uint64_t>(8, 10)), after = night_of_lines(std::vector<uint64_t>(8, 10));
  after.tasks[0].samples[0].diff->lines_added = 99'999;
  after.tasks[0].samples[0].outcome = rollout::Outcome::kInfraError;
  after.tasks[1].samples[0].diff.reset();
  after.tasks[2].samples[0].diff.reset();
  after.tasks[2].samples[1].diff.reset();
  const auto& lines = figure_of(compare(before, after, 0.95).work.all, "lines_changed").change;
  ASSERT_TRUE(lines);
  EXPECT_EQ(lines->change, 0);
  EXPECT_EQ(lines->tasks, 7);
  EXPECT_EQ(lines->samples_before, 14u);
  EXPECT_EQ(lines->samples_after, 12u);
}

TEST(WorkComparison, results_of_an_older_version_are_read_and_compare_nothing) {
  const auto now = night_of_lines(std::vector<uint64_t>(8, 10));
  Json json = to_json(now);
  for (Json& task : json["tasks"]) {
    for (Json& sample : task["samples"]) {
      sample.erase("diff");
      sample["behaviour"].erase("reads_before_edit");
      sample["behaviour"].erase("seconds_to_edit");
    }
  }
  const auto older = night_from_json(json);
  ASSERT_TRUE(older) << older.error().to_string();
  EXPECT_FALSE(to_json(*older)["tasks"][0]["samples"][0]["behaviour"].contains("reads_before_edit"))
      << "what was not counted is not made up";
  const auto comparison = compare(*older, now, 0.95);
  for (const auto& figure : comparison.work.passed) EXPECT_FALSE(figure.change) << figure.name;
  EXPECT_FALSE(figure_of(comparison.work.all, "reads_before_edit").change);
  EXPECT_TRUE(figure_of(comparison.work.all, "edits").change);
  const auto lines = work_lines(comparison.work);
  EXPECT_THAT(lines, Contains(AllOf(StartsWith("no task has in both: "), HasSubstr("lines changed, "),
                                    HasSubstr("reads before the first edit"), Not(HasSubstr("of samples that")))));
  const auto gate = gate_of({.max_growth = 0}, "max_growth", *older, now);
  EXPECT_TRUE(gate.passed);
  EXPECT_THAT(gate.says, HasSubstr("nothing to compare: no task has lines changed in both"));
}

TEST(WorkComparison, behaviour_is_compared_over_samples_that_have_it) {
  const auto night = [](int edits, int parallel, double seconds) {
    return with_each_sample(night_of_lines(std::vector<uint64_t>(9, 10)), [&](SampleResult& sample) {
      sample.behaviour.edits = edits;
      sample.behaviour.calls = 4;
      sample.behaviour.parallel_calls = parallel;
      sample.behaviour.seconds_to_edit = seconds;
    });
  };
  const auto work = compare(night(1, 0, 2), night(3, 2, 6), 0.95).work;
  EXPECT_EQ(figure_of(work.all, "edits").change->change, 2);
  EXPECT_EQ(figure_of(work.all, "parallel_share").change->change, 0.5);
  EXPECT_NEAR(figure_of(work.all, "seconds_to_edit").change->change, 2, 1e-9);
  EXPECT_NEAR(figure_of(work.all, "seconds_to_edit").change->after, 6, 1e-9);
  const auto idle = compare(night(1, 0, 2), night(0, 0, 0), 0.95).work;
  EXPECT_FALSE(figure_of(idle.all, "seconds_to_edit").change) << "no edit has no time";
}

TEST(WorkComparison, no_number_is_infinite_whatever_a_file_says) {
  const auto extreme = [](double seconds, uint64_t lines) {
    return with_each_sample(night_of_lines(std::vector<uint64_t>(7, lines)), [&](SampleResult& sample) {
      sample.diff->lines_removed = lines;
      sample.diff->new_lints = lines;
      sample.behaviour.edits = 1;
      sample.behaviour.calls = 1;
      sample.behaviour.parallel_calls = 7;  // more than there are
      sample.behaviour.seconds_to_edit = seconds;
    });
  };
  const Night small = extreme(5e-324, 0), large = extreme(1e9, uint64_t{1} << 53);
  for (const auto& [before, after] : {std::pair(&small, &large), std::pair(&large, &small)}) {
    const Json json = to_json(compare(*before, *after, 0.95)).at("work");
    expect_finite(json);
    for (const char* name : {"lines_changed", "new_lints", "tests_touched", "seconds_to_edit", "parallel_share"})
      EXPECT_TRUE(json.at("all").at(name).at("change").is_number()) << name;
    EXPECT_LE(json.at("all").at("parallel_share").at("after").get<double>(), 1);
    expect_finite(to_json(compare(Night(), *after, 0.95)).at("work"));
  }
}

TEST(WorkGates, growth_fails_where_it_is_sure_and_beyond_what_is_tolerated) {
  const auto before = night_of_lines(std::vector<uint64_t>(12, 9)),
             after = night_of_lines(std::vector<uint64_t>(12, 19));
  for (const char* name : {"max_growth", "max_growth_blessed"}) {
    const auto failed = gate_of({.max_growth = 0.5}, name, before, after);
    EXPECT_FALSE(failed.passed);
    EXPECT_NEAR(*failed.value, 1, 1e-9);
    EXPECT_EQ(failed.limit, 0.5);
    EXPECT_EQ(failed.says, "of samples that passed, lines changed +100 % (95 % interval +100 to +100 %), 12 tasks");
    EXPECT_TRUE(gate_of({.max_growth = 1.5}, name, before, after).passed);
    EXPECT_TRUE(gate_of({.max_growth = 0.5}, name, after, before).passed);
  }
  const auto comparison = compare(before, after, 0.95);
  const auto summary = summarize(after, {});
  EXPECT_EQ(exit_code_of(check_gates({.max_growth = 0.5}, summary, &comparison, nullptr)), kRegression);
  EXPECT_EQ(exit_code_of(check_gates({.max_growth = 0.5}, summary, nullptr, nullptr)), kDone);
  EXPECT_EQ(exit_code_of(check_gates({}, summary, &comparison, nullptr)), kDone);
}

TEST(WorkGates, a_comparison_that_decides_nothing_passes_and_says_so) {
  const auto before = night_of_lines({5, 50, 5, 50, 5, 50, 5, 50}),
             after = night_of_lines({50, 5, 50, 5, 50, 5, 50, 60});
  const auto gate = gate_of({.max_growth = 0}, "max_growth", before, after);
  EXPECT_TRUE(gate.passed);
  EXPECT_GT(*gate.value, 0);
  EXPECT_THAT(gate.says, HasSubstr("no sure difference: lines changed +"));
}

TEST(WorkGates, samples_that_did_not_pass_are_none_of_what_gates_judge) {
  // A night that solves more changes more: those that gave up had changed nothing.
  auto before = night_of_lines(std::vector<uint64_t>(10, 20), 4);
  for (auto& task : before.tasks) {
    for (size_t i = 1; i < 4; ++i) {
      task.samples[i].reward = 0;
      task.samples[i].diff = WorkSize();
    }
  }
  const auto after = night_of_lines(std::vector<uint64_t>(10, 20), 4);
  EXPECT_TRUE(figure_of(compare(before, after, 0.95).work.all, "lines_changed").change->rose());
  const auto gate = gate_of({.max_growth = 0}, "max_growth", before, after);
  EXPECT_TRUE(gate.passed);
  EXPECT_EQ(gate.value, 0);
}

TEST(WorkGates, lints_and_touched_tests_have_their_own) {
  const auto before = with_each_sample(night_of_lines(std::vector<uint64_t>(8, 5)),
                                       [](SampleResult& sample) { sample.diff->new_lints = 0; });
  const auto after = with_each_sample(before, [](SampleResult& sample) {
    sample.diff->new_lints = 2;
    sample.diff->test_files = sample.sample == 0 ? 30 : 0;
  });
  const auto lints = gate_of({.max_new_lints_increase = 1}, "max_new_lints_increase", before, after);
  EXPECT_FALSE(lints.passed);
  EXPECT_EQ(lints.value, 2);
  EXPECT_EQ(lints.says, "of samples that passed, new lints +2 a sample (95 % interval +2 to +2), 8 tasks");
  EXPECT_TRUE(gate_of({.max_new_lints_increase = 2}, "max_new_lints_increase", before, after).passed);
  const auto tests = gate_of({.max_tests_touched_increase = 0.1}, "max_tests_touched_increase", before, after);
  EXPECT_FALSE(tests.passed);
  EXPECT_EQ(tests.value, 0.5);
  EXPECT_THAT(tests.says, HasSubstr("share that touched tests +50 points"));
  const auto no_linter = with_each_sample(after, [](SampleResult& sample) { sample.diff->new_lints = std::nullopt; });
  const auto unknown = gate_of({.max_new_lints_increase = 0}, "max_new_lints_increase", no_linter, after);
  EXPECT_TRUE(unknown.passed);
  EXPECT_THAT(unknown.says, HasSubstr("no task has new lints in both"));
}

TEST(WorkReports, all_of_them_show_the_change_and_the_gate) {
  const auto before = night_of_lines(std::vector<uint64_t>(12, 9));
  Verdict verdict{.night = night_of_lines(std::vector<uint64_t>(12, 19))};
  verdict.summary = summarize(verdict.night, {});
  verdict.against = compare(before, verdict.night, 0.95);
  verdict.blessed = verdict.against;
  verdict.gates = check_gates({.max_growth = 0.5}, verdict.summary, &*verdict.against, &*verdict.blessed);
  verdict.code = exit_code_of(verdict.gates);
  EXPECT_EQ(verdict.code, kRegression);
  const auto markdown = report_markdown(verdict);
  const auto page = report_page(verdict, [](const SampleResult&) { return Json(); });
  EXPECT_THAT(markdown, HasSubstr("| all | lines changed | 9 | 19 | +100 % | +100 to +100 % | 12 | rose |"));
  EXPECT_THAT(markdown, HasSubstr("Work beside the blessed one"));
  EXPECT_THAT(page, HasSubstr("<tr><td>lines changed<td>passed<td>9<td>19<td>+100 %<td>+100 to +100 %<td>12<td "
                              "class=\"text\">rose"));
  EXPECT_THAT(junit_xml(verdict), HasSubstr("name=\"gate.max_growth\" value=\"failed: of samples that passed, lines"));
  const Json results = results_json(verdict);
  const Json& lines = results.at("against").at("work").at("passed").at("lines_changed");
  EXPECT_EQ(lines.at("sure"), "rose");
  EXPECT_EQ(lines.at("average"), "geometric_mean");
  EXPECT_EQ(lines.at("tasks"), 12);
  EXPECT_EQ(lines.at("samples"), (Json{24, 24}));
  EXPECT_TRUE(results.at("against").at("work").at("passed").at("new_lints").is_null());
  EXPECT_FALSE(results.at("against").at("work").at("passed").contains("edits"));
  EXPECT_THAT(work_lines(verdict.against->work),
              Contains("lines changed of samples that passed: rose +100 % (95 % interval +100 to +100 %), 12 tasks"));
}

TEST(WorkReports, without_anything_to_compare_they_say_so) {
  Verdict verdict{.night = night_with({4})};
  verdict.against = NightComparison();
  verdict.summary = summarize(verdict.night, {});
  EXPECT_THAT(report_markdown(verdict), HasSubstr("Work beside the night before: nothing to compare."));
  EXPECT_THAT(report_page(verdict, [](const SampleResult&) { return Json(); }),
              HasSubstr("<h2>Work beside the night before</h2>\n<p class=\"none\">nothing to compare</p>"));
}

}  // namespace
}  // namespace tandem::eval
