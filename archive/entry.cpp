#include "archive/entry.h"

#include <fmt/format.h>

#include <algorithm>
#include <fstream>
#include <set>

#include "base/record_log.h"
#include "dashboard/summary.h"
#include "kernels/device.h"
#include "rollout/books/ledger_log.h"
#include "run/resume.h"
#include "run/topology.h"
#include "standby/record.h"

namespace tandem::archive {
namespace {

constexpr int kDepth = 4;
constexpr size_t kMostFolders = 100'000;
constexpr uint64_t kMostSummary = 64 << 20;
// Most bytes of a ledger, and of the end of metrics.jsonl, that are read for a line of a list.
constexpr uint64_t kMostLedger = 64 << 20, kMetricsEnd = 4 << 20;
constexpr double kMostSeconds = 1e11;  // a time beyond it was not written by a clock

bool is_run(const fs::path& dir) {
  std::error_code error;
  return fs::is_regular_file(dir / "config.resolved.json", error);
}

std::optional<double> time_at(const Json& object, const char* key) {
  const auto time = dashboard::maybe_number_at(object, key);
  return time && *time >= 0 && *time < kMostSeconds ? time : std::nullopt;
}

// What a file says, if it is there and an object.
Json object_in(const fs::path& path) {
  const auto text = read_file(path, kMostSummary);
  if (!text) return Json::object();
  auto json = parse_json(*text);
  return json && json->is_object() ? std::move(*json) : Json::object();
}

Json part_of(const Json& object, const char* key) {
  const auto found = object.find(key);
  return found != object.end() && found->is_object() ? *found : Json::object();
}

std::string string_of(const Json& object, const char* key) {
  const auto found = object.find(key);
  return found != object.end() && found->is_string() ? found->get<std::string>() : "";
}

State state_of(const fs::path& dir, const Json& status, uint64_t step) {
  if (const auto record = standby::read_record_of(dir); record && !record->is_taken) return State::kCopy;
  if (dashboard::is_on(dir, status)) return State::kOn;
  if (string_of(status, "end") == "interrupted") return State::kInterrupted;
  const std::string said = string_of(status, "state");
  // Runs of earlier versions say "done" where a signal ended them; only their phase tells that there is more to do.
  const std::string phase = string_of(status, "phase");
  if (said == "done") return phase.empty() || phase == "done" ? State::kDone : State::kInterrupted;
  if (said == "failed") return State::kFailed;
  if (step == 0) return State::kEmpty;
  std::error_code error;
  // A run that stops on a signal says so in its last words; one that was killed has none of this attempt.
  const auto words = fs::last_write_time(dir / "supervisor.json", error);
  if (error) return State::kKilled;
  const auto written = fs::last_write_time(dir / "status.json", error);
  return !error && words >= written ? State::kInterrupted : State::kKilled;
}

std::optional<double> time_of_first_start(const fs::path& dir) {
  std::optional<double> time;
  (void)read_log(dir / "starts.log", [&](std::string_view record, uint64_t) -> Status {
    time = time_at(TRY(parse_json(record)), "time");
    return Status::cancelled("seen enough");
  });
  return time;
}

// Each GPU is the run's from its beginning to its end, whatever is computed there. Nothing where the config leaves it
// to the machine which device there is.
std::optional<double> gpu_seconds_of(const run::RunConfig& config, std::optional<double> wall_seconds) {
  const auto topology = run::topology_of(config);
  if (!topology) return std::nullopt;
  std::set<std::pair<std::string, std::string>> gpus;
  for (const auto& place : topology->places) {
    const auto device = kernels::device_named(place.device);
    if (!device || device->kind == kernels::Device::Kind::kAuto) return std::nullopt;
    if (device->kind == kernels::Device::Kind::kCuda) gpus.emplace(place.host, place.device);
  }
  if (gpus.empty()) return 0;
  return wall_seconds ? std::optional(*wall_seconds * static_cast<double>(gpus.size())) : std::nullopt;
}

std::optional<dashboard::Estimate> estimate_of(const Json& rate) {
  const auto value = dashboard::maybe_number_at(rate, "pass_rate");
  const auto interval = rate.find("ci95");
  if (!value || interval == rate.end() || !interval->is_array() || interval->size() != 2) return std::nullopt;
  if (!interval->at(0).is_number() || !interval->at(1).is_number()) return std::nullopt;
  return dashboard::Estimate{
      .value = *value, .low = interval->at(0).get<double>(), .high = interval->at(1).get<double>()};
}

void add_summary(RunEntry& entry, const Json& summary) {
  entry.step = static_cast<uint64_t>(std::clamp(dashboard::number_at(summary, "steps"), 0.0, 1e15));
  const Json heldout = part_of(summary, "heldout");
  entry.heldout = estimate_of(part_of(heldout, "after"));
  if (const auto during = heldout.find("during"); !entry.heldout && during != heldout.end() && during->is_array()) {
    for (const Json& one : *during) {
      if (const auto rate = one.is_object() ? estimate_of(part_of(one, "sampled")) : std::nullopt) entry.heldout = rate;
    }
  }
  if (!entry.heldout) entry.heldout = estimate_of(part_of(heldout, "before"));
  entry.wall_seconds = time_at(summary, "wall_seconds");
  entry.core_seconds = dashboard::maybe_number_at(part_of(summary, "cost"), "core_seconds");
}

void add_config(RunEntry& entry, const run::RunConfig& config) {
  entry.model = config.model.path;
  entry.steps = static_cast<uint64_t>(std::max(0, config.run.steps));
  entry.gpu_seconds = gpu_seconds_of(config, entry.wall_seconds);
}

void add_files(RunEntry& entry, const Json& status) {
  entry.state = state_of(entry.dir, status, entry.step);
  entry.began = time_of_first_start(entry.dir);
  entry.ended = time_at(status, "time");
  if (!entry.ended) entry.ended = entry.began;
  entry.bytes = bytes_below(entry.dir);
}

std::optional<double> success_of(const std::vector<Json>& steps) {
  return steps.empty() ? std::nullopt : dashboard::maybe_number_at(steps.back(), "success");
}

uint64_t size_of(const fs::path& file) {
  std::error_code error;
  const uint64_t size = fs::file_size(file, error);
  return error ? 0 : size;
}

// The last whole line of metrics.jsonl; an empty object where there is none. Of a large file the end alone is read.
Result<Json> last_step_of(const fs::path& dir) {
  const fs::path path = dir / "metrics.jsonl";
  const uint64_t size = size_of(path);
  if (size <= kMetricsEnd) {
    auto steps = TRY(dashboard::read_metrics(dir));
    return steps.empty() ? Json::object() : std::move(steps.back());
  }
  std::ifstream file(path, std::ios::binary);
  file.seekg(static_cast<std::streamoff>(size - kMetricsEnd));
  std::string line;
  std::getline(file, line);  // the rest of one that began before
  Json last = Json::object();
  while (std::getline(file, line) && !file.eof()) {
    if (auto json = parse_json(line); json && json->is_object()) last = std::move(*json);
  }
  return last;
}

// The summary of a run that is over and wrote one after its last word; it spares reading the whole log. kInvalid where
// it is of another format.
Result<std::optional<Json>> written_summary(const fs::path& dir, const Json& status) {
  if (dashboard::is_on(dir, status)) return std::nullopt;
  std::error_code error;
  const auto summary = fs::last_write_time(dir / "summary.json", error);
  if (error) return std::nullopt;
  for (const char* later : {"supervisor.json", "metrics.jsonl"}) {
    const auto time = fs::last_write_time(dir / later, error);
    if (!error && time > summary) return std::nullopt;
  }
  Json json = object_in(dir / "summary.json");
  if (auto format = format_of(json, dashboard::kSummaryFormat); !format)
    return fail(std::move(format).error().at((dir / "summary.json").string()));
  return json.contains("cost") ? std::optional(std::move(json)) : std::nullopt;
}

void visit_folders(const fs::path& folder, int depth, size_t& seen, std::vector<fs::path>& runs) {
  if (is_run(folder)) {
    runs.push_back(folder);
    return;
  }
  if (depth == 0 || seen > kMostFolders) return;
  std::error_code error;
  for (const auto& entry : fs::directory_iterator(folder, error)) {
    std::error_code ignored;
    const std::string name = entry.path().filename();
    if (entry.is_symlink(ignored) || !entry.is_directory(ignored) || name.starts_with('.')) continue;
    if (++seen > kMostFolders) return;
    visit_folders(entry.path(), depth - 1, seen, runs);
  }
}

}  // namespace

std::string_view to_string(State state) {
  switch (state) {
    case State::kOn:
      return "on";
    case State::kDone:
      return "done";
    case State::kInterrupted:
      return "interrupted";
    case State::kFailed:
      return "failed";
    case State::kKilled:
      return "killed";
    case State::kCopy:
      return "copy";
    case State::kEmpty:
      break;
  }
  return "empty";
}

Result<std::vector<fs::path>> find_runs(const fs::path& folder) {
  std::error_code error;
  if (!fs::is_directory(folder, error))
    return fail(Status::invalid(fmt::format("\"{}\" is not a folder", folder.string()))
                    .hint("give the folder that holds runs, such as runs"));
  std::vector<fs::path> runs;
  size_t seen = 0;
  visit_folders(folder, kDepth, seen, runs);
  if (seen > kMostFolders)
    return fail(Status::exhausted(fmt::format("{} has more than {} folders", folder.string(), kMostFolders))
                    .hint("give a folder nearer to the runs"));
  std::sort(runs.begin(), runs.end());
  return runs;
}

RunEntry entry_of(const dashboard::RunFiles& run, const Json& summary) {
  RunEntry entry{.dir = run.dir};
  add_summary(entry, summary);
  if (const auto config = run::read_resolved(run.dir)) add_config(entry, *config);
  entry.training_success = success_of(run.steps);
  add_files(entry, run.status);
  return entry;
}

RunEntry read_entry(const fs::path& run_dir) {
  RunEntry entry{.dir = run_dir};
  const auto read = [&]() -> Status {
    const auto config = TRY(run::read_resolved(run_dir));
    add_config(entry, config);
    const Json status = TRY(dashboard::read_status(run_dir));
    if (const auto summary = TRY(written_summary(run_dir, status))) {
      add_summary(entry, *summary);
      entry.training_success = dashboard::maybe_number_at(TRY(last_step_of(run_dir)), "success");
    } else if (size_of(rollout::ledger_log_path(run_dir)) > kMostLedger) {
      // A list must not take a minute for a run: what only the books know is left out.
      const Json last = TRY(last_step_of(run_dir));
      entry.step = static_cast<uint64_t>(std::clamp(dashboard::number_at(last, "step"), 0.0, 1e15));
      entry.training_success = dashboard::maybe_number_at(last, "success");
      entry.wall_seconds = time_at(status, "wall_seconds");
    } else {
      const auto files = TRY(dashboard::read_run(run_dir, TRY(run::plan_of(config, run_dir))));
      add_summary(entry, dashboard::summarise(files));
      entry.training_success = success_of(files.steps);
    }
    add_config(entry, config);
    return {};
  };
  if (const Status status = read(); !status) entry.problem = status.to_string();
  add_files(entry, object_in(run_dir / "status.json"));
  return entry;
}

Json to_json(const RunEntry& entry, double now) {
  const auto number = [](const std::optional<double>& value) { return value ? Json(*value) : Json(); };
  const auto& heldout = entry.heldout;
  return {{"run", entry.dir.string()},
          {"state", to_string(entry.state)},
          {"model", entry.model},
          {"step", entry.step},
          {"steps", entry.steps},
          {"heldout", heldout ? Json{{"pass_rate", heldout->value}, {"ci95", {heldout->low, heldout->high}}} : Json()},
          {"training_success", number(entry.training_success)},
          {"began", number(entry.began)},
          {"ended", number(entry.ended)},
          {"age_seconds", entry.ended ? Json(std::max(0.0, now - *entry.ended)) : Json()},
          {"wall_seconds", number(entry.wall_seconds)},
          {"core_seconds", number(entry.core_seconds)},
          {"gpu_seconds", number(entry.gpu_seconds)},
          {"bytes", entry.bytes},
          {"problem", entry.problem.empty() ? Json() : Json(entry.problem)}};
}

}  // namespace tandem::archive
