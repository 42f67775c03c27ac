// One evaluation as it came out, what is computed of it, and how it compares with another. Values and pure functions.
#pragma once

#include <map>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "dashboard/statistics.h"
#include "eval/folder.h"
#include "eval/statistics.h"
#include "eval/work_comparison.h"

namespace tandem::eval {

struct TaskNight {
  std::string task, kind, digest;
  std::vector<SampleResult> samples;  // by number

  int verdicts() const;
  int passed() const;
  // The share of its samples that passed; nothing where none has a verdict.
  std::optional<double> rate() const;
};

// The content of a folder.
struct Night {
  std::string suite, model, model_digest, tasks_digest, config_digest, version, profile;
  double started = 0;      // unix seconds
  double seconds = 0;      // in which samples ran, however often it was interrupted
  int samples_wanted = 1;  // of each task
  std::vector<TaskNight> tasks;
};

// "the server says that other-model answered 3 samples, and good was asked for"; empty where it says nothing of the
// kind.
std::string other_models_of(const Night& night);

Night night_of(const Identity& identity, const std::map<SampleKey, SampleResult>& samples);

// DIR/results.json. kInvalid where DIR has none, kCorrupt where it is no result of an evaluation.
Result<Night> read_night(const fs::path& directory);
// Its part of results.json: who, what, when, and every sample.
Json to_json(const Night& night);
Result<Night> night_from_json(const Json& json);

struct NightSummary {
  size_t wanted = 0, ended = 0, verdicts = 0, passed = 0;  // samples
  std::optional<dashboard::Estimate> pass_rate;            // among those with a verdict
  std::map<int, double> pass_at;                           // by k; the mean over tasks with so many verdicts
  std::map<std::string, size_t> outcomes;                  // all six
  double error_share = 0;                                  // of the samples wanted, without a verdict
  std::optional<double> seconds_p50, seconds_p95;          // of samples with a verdict
  uint64_t prompt_tokens = 0, completion_tokens = 0;
  double sample_seconds = 0;                            // all samples together
  double cost = 0;                                      // by Prices
  std::optional<double> cost_of_pass, seconds_of_pass;  // of a passed sample, all others included
  size_t solved = 0;                                    // tasks of which a sample passed
  ComputeUse use;                                       // of all samples
  size_t flagged = 0;                                   // samples that look like cheats
  BehaviourSums behaviour;                              // of samples with a verdict
  WorkSizes diffs, diffs_of_passed;                     // of those of them whose differences are known
};
// Of a solved task, all samples of all tasks included; nothing where no task was solved, or the sum is not known.
std::optional<double> of_solved_task(const NightSummary& summary, const std::optional<double>& sum);
// "0.31 core-seconds (0.30 of the model, 0.01 of sandboxes), 812 tokens, 1.2 s of samples".
std::string solved_task_text(const NightSummary& summary);
NightSummary summarize(const Night& night, const Prices& prices);
Json to_json(const NightSummary& summary);

struct NightComparison {
  std::string directory;  // of the other one, as it was named
  std::string model;
  std::optional<Difference> difference;          // of the pass rates, over tasks that both have
  McNemar pairs;                                 // sample i of a task with sample i of it
  std::vector<std::string> regressed, improved;  // tasks whose rate fell or rose, the largest change first
  std::vector<std::string> flaky;                // of those in both, whose results came and went before
  std::vector<std::string> other_tasks;          // that are not the same in both: changed, new or gone
  bool same_config = true;                       // samples, temperature, seed and limits
  std::optional<double> slowdown;                // of the median sample, as a share
  bool is_slower = false;                        // at the confidence, over tasks
  double confidence = 0.95;
  WorkComparison work = {};  // over tasks that are the same in both

  // A loss that is sure at the confidence.
  bool is_regression() const { return difference && difference->high < 0; }
};
// Flaky tasks count half of the others in the difference of the pass rates.
NightComparison compare(const Night& before, const Night& after, double confidence,
                        const std::set<std::string>& flaky = {});
Json to_json(const NightComparison& comparison);
// "worse by 3.1 points (95 % interval -5.0 to -1.2)".
std::string verdict_of(const NightComparison& comparison);

// "12 ms" below a second, else as format_seconds (base/text.h) has it.
std::string seconds_text(double seconds);

}  // namespace tandem::eval
