// Night after night: a line for each evaluation of a chain, each compared with the one before it.
//
// A folder's history.jsonl begins with that of the evaluation that it was compared with. Values and pure functions, but
// for those that read files.
#pragma once

#include <set>
#include <string>
#include <vector>

#include "eval/night.h"

namespace tandem::eval {

inline constexpr size_t kMostNights = 400;  // the newest ones are kept

struct HistoryLine {
  std::string night;  // name of its folder
  double started = 0;
  std::string suite, model, model_digest, tasks_digest, config_digest, version;
  double pass_rate = 0, low = 0, high = 0;
  std::optional<double> points;  // against the one before
  double seconds_p50 = 0, seconds_p95 = 0;
  double cost_of_pass = 0, error_share = 0;
  int code = 0;                                      // exit code
  std::map<std::string, std::pair<int, int>> tasks;  // passed, with a verdict
};

HistoryLine history_line(const std::string& name, const Night& night, const NightSummary& summary,
                         const std::optional<NightComparison>& against, int code);
Json to_json(const HistoryLine& line);
Result<HistoryLine> history_line_from_json(const Json& json);
std::string history_text(const std::vector<HistoryLine>& lines);

// DIR/history.jsonl. Empty where there is none; kCorrupt, with the line, for one that is none.
Result<std::vector<HistoryLine>> read_history(const fs::path& directory);

// The history of one evaluation, or of a folder of evaluations: all lines of those in it, by time; where a clock was
// set back, a night still comes after the one that it was compared with. kInvalid where there is none.
Result<std::vector<HistoryLine>> gather_history(const fs::path& directory);

// Tasks whose results come and go: in the newest 20 nights the rate of one fell and rose again, or the other way round,
// twice at least by half of the task's samples.
std::set<std::string> flaky_tasks(const std::vector<HistoryLine>& lines);

// The blessed evaluation of the folder that `night` lies in, by blessed.json there; empty where none is.
Result<fs::path> blessed_beside(const fs::path& night);
// Makes `night` that one.
Status bless(const fs::path& night, double now);

}  // namespace tandem::eval
