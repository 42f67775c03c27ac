#include "dashboard/run_files.h"

#include <fmt/format.h>
#include <signal.h>

#include <cerrno>
#include <chrono>
#include <fstream>
#include <map>

#include "base/json_file.h"
#include "base/text.h"
#include "dashboard/losses.h"
#include "rollout/books/failures.h"
#include "rollout/books/ledger_log.h"
#include "rollout/books/metrics_log.h"

namespace tandem::dashboard {

namespace {

constexpr uint64_t kMetricsLimit = uint64_t{4} << 30;
constexpr uint64_t kMostBytes = 64 << 20;
constexpr auto kStale = std::chrono::seconds(15);

// Empty where there is no such file.
Result<Json> read_object(const fs::path& path) {
  const auto text = read_file(path, kMostBytes);
  if (!text && text.error().code() == Code::kNotFound) return Json::object();
  if (!text) return fail(text.error());
  auto json = parse_json(*text);
  if (!json) return fail(Status(json.error()).at(path.string()));
  if (!json->is_object()) return fail(Status::corrupt("is not a JSON object").at(path.string()));
  return *json;
}

// The same for a file with a format.
Result<Json> read_object(const fs::path& path, int newest) {
  auto json = read_json_file(path, newest, kMostBytes);
  if (!json && json.error().code() == Code::kNotFound) return Json::object();
  return json;
}

}  // namespace

double number_at(const Json& object, const char* key, double otherwise) {
  return maybe_number_at(object, key).value_or(otherwise);
}

std::optional<double> maybe_number_at(const Json& object, const char* key) {
  if (!object.is_object()) return std::nullopt;
  const auto found = object.find(key);
  if (found == object.end() || !found->is_number()) return std::nullopt;
  return found->get<double>();
}

Status check_run_directory(const fs::path& dir) {
  std::error_code error;
  if (!fs::is_directory(dir, error)) return Status::invalid(fmt::format("\"{}\" is not a folder", dir.string()));
  if (!fs::exists(dir / "config.resolved.json", error)) {
    return Status::invalid(fmt::format("\"{}\" is not a run directory: it has no config.resolved.json", dir.string()))
        .hint("give the folder that `tandem run` wrote, such as runs/NAME");
  }
  return {};
}

Result<std::vector<Json>> read_metrics(const fs::path& dir) {
  const fs::path path = dir / "metrics.jsonl";
  std::vector<Json> lines;
  const auto text = read_file(path, kMetricsLimit);
  if (!text && text.error().code() == Code::kNotFound) return lines;
  if (!text) return fail(text.error());
  int number = 0;
  for (std::string_view rest = *text; !rest.empty();) {
    const size_t end = rest.find('\n');
    const std::string_view line = rest.substr(0, end);
    rest.remove_prefix(end == std::string_view::npos ? rest.size() : end + 1);
    ++number;
    if (trim(line).empty()) continue;
    auto json = parse_json(line);
    if (json && json->is_object()) {
      if (auto format = format_of(*json, rollout::kMetricsFormat); !format)
        return fail(std::move(format).error().at(path.string(), number));
      json->erase("format");
      lines.push_back(std::move(*json));
    } else if (end != std::string_view::npos && !rest.empty()) {
      return fail(Status::corrupt(json ? "is not a JSON object" : json.error().message()).at(path.string(), number));
    }
  }
  return lines;
}

std::vector<Json> MetricsFollower::next() {
  std::vector<Json> lines;
  if (!open_regular_file(path_)) return lines;
  std::ifstream file(path_, std::ios::binary);
  file.seekg(static_cast<std::streamoff>(offset_));
  for (std::string line; std::getline(file, line) && !file.eof();) {  // at the end of the file the line has no end yet
    offset_ += line.size() + 1;
    auto json = parse_json(line);
    if (!json || !json->is_object()) continue;
    json->erase("format");
    lines.push_back(std::move(*json));
  }
  return lines;
}

Result<Json> read_status(const fs::path& dir) { return read_object(dir / "status.json", kStatusFormat); }

bool is_on(const fs::path& dir, const Json& status) {
  if (const auto end = status.find("end"); end != status.end() && !end->is_null()) return false;
  const auto said = status.find("state");
  const std::string state = said != status.end() && said->is_string() ? said->get<std::string>() : "";
  if (state != "starting" && state != "running" && state != "stopping") return false;
  const double pid = number_at(status, "pid");
  if (pid >= 1 && ::kill(static_cast<pid_t>(pid), 0) != 0 && errno == ESRCH) return false;
  std::error_code error;
  const auto written = fs::last_write_time(dir / "status.json", error);
  return !error && fs::file_time_type::clock::now() - written < kStale;
}

Result<RunFiles> read_run(const fs::path& dir, rollout::RunPlan plan) {
  TRY(check_run_directory(dir));
  EpisodeTotals totals;
  const auto add = [&](const rollout::EpisodeRecord& episode) { return totals.add(episode), Status(); };
  auto ledger = TRY(rollout::read_episodes(dir, std::move(plan), add));
  RunFiles run{.dir = dir, .ledger = std::move(ledger), .totals = std::move(totals)};
  run.config = TRY(read_object(dir / "config.resolved.json"));
  run.status = TRY(read_status(dir));
  run.supervisor = TRY(read_object(dir / "supervisor.json", kSupervisorFormat));
  run.failures = TRY(rollout::Failures::read(dir / "failures.json")).report();
  run.floors = TRY(read_object(dir / "floors.json", kFloorsFormat));
  std::map<uint64_t, Json> by_step;
  for (Json& line : TRY(read_metrics(dir))) {
    const double step = number_at(line, "step", -1);
    if (step >= 0) by_step[static_cast<uint64_t>(step)] = std::move(line);
  }
  for (auto& [step, line] : by_step) run.steps.push_back(std::move(line));
  run.losses = losses_of(dir, run.ledger);
  return run;
}

}  // namespace tandem::dashboard
