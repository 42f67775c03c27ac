#include "cli/run/run_dir.h"

#include <fmt/format.h>

#include <algorithm>
#include <ctime>
#include <vector>

#include "rollout/books/ledger_log.h"
#include "run/resume.h"

namespace tandem::cli {
namespace {

constexpr std::string_view kTimePattern = "dddddddd-dddddd";  // d: a digit
constexpr int kMostOfASecond = 10'000;

std::string time_of_run() {
  const std::time_t now = std::time(nullptr);
  std::tm parts{};
  ::localtime_r(&now, &parts);
  char text[32];
  std::strftime(text, sizeof text, "%Y%m%d-%H%M%S", &parts);
  return text;
}

bool all_digits(std::string_view text) {
  return !text.empty() && text.find_first_not_of("0123456789") == std::string_view::npos;
}

// A name's order among those of its stem: by time, then by number within a second. Nothing where the name is another's.
std::optional<std::pair<std::string, int>> order_of(std::string_view name, std::string_view stem) {
  if (!name.starts_with(stem)) return {};
  name.remove_prefix(stem.size());
  if (!name.starts_with('-')) return {};
  name.remove_prefix(1);
  const std::string_view time = name.substr(0, kTimePattern.size());
  if (time.size() != kTimePattern.size()) return {};
  for (size_t i = 0; i < time.size(); ++i) {
    if (kTimePattern[i] == '-' ? time[i] != '-' : !all_digits(time.substr(i, 1))) return {};
  }
  const std::string_view rest = name.substr(kTimePattern.size());
  if (rest.empty()) return std::pair(std::string(time), 1);
  if (!rest.starts_with('-') || !all_digits(rest.substr(1)) || rest.size() > 6) return {};
  return std::pair(std::string(time), std::stoi(std::string(rest.substr(1))));
}

// What cannot be read is not done: going on says what is wrong with it.
bool is_done(const fs::path& run_dir) {
  const auto recorded = run::read_recorded(run_dir);
  if (!recorded) return false;
  const auto ledger = rollout::read_books(run_dir, [&] { return run::plan_of(recorded->config, run_dir); });
  return ledger && ledger->finished();
}

// Newest first.
std::vector<fs::path> runs_of(const fs::path& folder, std::string_view stem) {
  std::vector<std::pair<std::pair<std::string, int>, fs::path>> found;
  std::error_code error;
  for (const auto& entry : fs::directory_iterator(folder, error)) {
    const auto order = order_of(entry.path().filename().string(), stem);
    if (order && fs::exists(entry.path() / "config.resolved.json")) found.emplace_back(*order, entry.path());
  }
  std::sort(found.rbegin(), found.rend());
  std::vector<fs::path> runs;
  for (auto& [order, path] : found) runs.push_back(std::move(path));
  return runs;
}

std::string numbered(const std::string& name, int number) {
  return number == 1 ? name : fmt::format("{}-{}", name, number);
}

}  // namespace

std::optional<fs::path> newest_open_run(const fs::path& folder, const std::string& stem) {
  const auto runs = runs_of(folder, stem);
  const auto open = std::find_if(runs.begin(), runs.end(), [](const fs::path& run) { return !is_done(run); });
  return open == runs.end() ? std::nullopt : std::optional(*open);
}

Result<fs::path> newest_run(const fs::path& folder, const std::string& stem) {
  if (auto open = newest_open_run(folder, stem)) return *open;
  const auto runs = runs_of(folder, stem);
  if (!runs.empty()) return runs.front();
  return fail(Status::invalid(fmt::format("there is no run of {} in {} to resume", stem, folder.string()))
                  .hint("give --run-dir, or start one without --resume"));
}

fs::path free_run_dir(const fs::path& folder, const std::string& stem) {
  const std::string name = fmt::format("{}-{}", stem, time_of_run());
  int number = 1;
  std::error_code error;
  while (number < kMostOfASecond && fs::exists(folder / numbered(name, number), error)) ++number;
  return folder / numbered(name, number);
}

Result<fs::path> make_run_dir(const fs::path& folder, const std::string& stem) {
  TRY(make_directories(folder));
  const std::string name = fmt::format("{}-{}", stem, time_of_run());
  for (int number = 1; number < kMostOfASecond; ++number) {
    const fs::path path = folder / numbered(name, number);
    std::error_code error;
    if (fs::create_directory(path, error)) return path;
    if (error) return fail(Status::from_errno(path.string(), error.value()));
  }
  return fail(Status::exhausted(fmt::format("{}: too many runs began in this second", (folder / name).string()))
                  .hint("choose a folder by --run-dir"));
}

}  // namespace tandem::cli
