// Reads a run directory for display: the books and totals of the episodes, the metrics of each step, the supervisor's
// notes.
//
// Reading changes nothing and needs no process of the run: it works on a finished run, on one that is on, and on what a
// killed one left. A file that is not there yet is an empty value; one that is damaged is an error that names it.
#pragma once

#include <optional>
#include <vector>

#include "base/file.h"
#include "base/json.h"
#include "dashboard/episode_totals.h"
#include "rollout/books/ledger.h"

namespace tandem::dashboard {

// Formats of the files that the supervisor writes.
inline constexpr int kStatusFormat = 1, kSupervisorFormat = 1, kFloorsFormat = 1, kSummaryFormat = 1,
                     kFailureFormat = 1;

struct RunFiles {
  fs::path dir;
  Json config = Json::object();      // config.resolved.json
  Json status = Json::object();      // status.json
  Json supervisor = Json::object();  // supervisor.json
  Json failures = Json::array();     // failures.json: why attempts got no reward
  Json floors = Json::object();      // floors.json: {name: pass rate}
  std::vector<Json> steps;           // metrics.jsonl by step; of several lines of one step, the last
  rollout::Ledger ledger;            // under History::kOpen
  EpisodeTotals totals;
  std::vector<std::string> losses;  // losses_of() the log
};

// kInvalid, in words for the command line, where `dir` is no run directory.
Status check_run_directory(const fs::path& dir);

// `plan` is that of the run's config: a log of format 1 means nothing without it. Reads the log once, in the memory of
// rollout::read_episodes().
Result<RunFiles> read_run(const fs::path& dir, rollout::RunPlan plan);

// The content of status.json; an empty object where there is none. kInvalid where it is of another format.
Result<Json> read_status(const fs::path& dir);

// Whether the run is on, by its status.json: it replaces that every second, and one that stopped doing so was killed.
bool is_on(const fs::path& dir, const Json& status);

// The lines of metrics.jsonl as they were written. A last line that is cut short is left out.
Result<std::vector<Json>> read_metrics(const fs::path& dir);

// Lines of metrics.jsonl while a run appends them: what the live view and the TensorBoard file are fed with.
class MetricsFollower {
 public:
  explicit MetricsFollower(const fs::path& dir) : path_(dir / "metrics.jsonl") {}

  // Whole lines that were added since the last call; of the first call, all. A line that is no JSON object is passed
  // over.
  std::vector<Json> next();

 private:
  fs::path path_;
  uint64_t offset_ = 0;
};

// Numbers of a JSON object that may lack them.
double number_at(const Json& object, const char* key, double otherwise = 0);
std::optional<double> maybe_number_at(const Json& object, const char* key);

}  // namespace tandem::dashboard
