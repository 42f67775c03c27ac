// `tandem runs compare`: two runs side by side, for people and as JSON.
#include <fmt/format.h>

#include <algorithm>
#include <cmath>

#include "archive/comparison.h"
#include "base/clock.h"
#include "base/exit_code.h"
#include "base/json_line.h"
#include "base/text.h"
#include "cli/runs/runs_commands.h"

namespace tandem::cli {
namespace {

std::string value_text(const archive::Figure& figure, const std::optional<double>& value,
                       const std::optional<dashboard::Estimate>& interval) {
  if (!value) return "-";
  if (interval)
    return fmt::format("{:.1f} % [{:.1f}, {:.1f}]", 100 * *value, 100 * interval->low, 100 * interval->high);
  if (figure.name.ends_with("_seconds")) return format_seconds(*value);
  if (*value == std::floor(*value) && std::abs(*value) < 1e15) return fmt::format("{:.0f}", *value);
  return fmt::format("{:.4g}", *value);
}

void print_table(std::string_view head, const std::string& before, const std::string& after,
                 const std::vector<std::array<std::string, 3>>& rows) {
  size_t first = head.size(), second = before.size();
  for (const auto& row : rows) {
    first = std::max(first, row[0].size());
    second = std::max(second, row[1].size());
  }
  fmt::print("{:<{}}  {:<{}}  {}\n", head, first, before, second, after);
  for (const auto& row : rows) fmt::print("{:<{}}  {:<{}}  {}\n", row[0], first, row[1], second, row[2]);
}

}  // namespace

Result<int> compare_two_runs(const std::string& before, const std::string& after, bool json) {
  const auto runs = TRY(archive::compare_runs(before, after));
  if (json) {
    fmt::print("{}\n", dump_json_line(archive::to_json(runs, SystemClock().unix_seconds())));
    return kDone;
  }
  std::vector<std::array<std::string, 3>> rows;
  for (const auto& change : runs.config)
    rows.push_back({change.key, dump_json(change.before), dump_json(change.after)});
  if (rows.empty())
    fmt::print("the configs are the same\n");
  else
    print_table("config", before, after, rows);
  rows = {{"state", std::string(to_string(runs.before.state)), std::string(to_string(runs.after.state))}};
  for (const auto& figure : runs.figures) {
    rows.push_back({figure.name, value_text(figure, figure.before, figure.before_interval),
                    value_text(figure, figure.after, figure.after_interval)});
  }
  fmt::print("\n");
  print_table("outcome", before, after, rows);
  if (runs.difference) {
    fmt::print("\nsuccess after training: {:+.1f} points [{:+.1f}, {:+.1f}], paired over {} held-out tasks\n",
               100 * runs.difference->value, 100 * runs.difference->low, 100 * runs.difference->high,
               runs.paired_tasks);
  } else {
    fmt::print("\nsuccess after training cannot be paired: {}\n", runs.unpaired);
  }
  return kDone;
}

}  // namespace tandem::cli
