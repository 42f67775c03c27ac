#include "dashboard/behaviour_charts.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <map>
#include <string_view>
#include <utility>

#include "dashboard/html.h"
#include "dashboard/run_files.h"

namespace tandem::dashboard {
namespace {

constexpr size_t kMostKinds = 8;

struct Figure {
  const char *name, *title;
  bool is_share = false;
};
constexpr Figure kFigures[] = {{"calls_per_turn", "Calls of a message of the model"},
                               {"parallel_share", "Share of calls that ran in parallel", true},
                               {"reads_before_edit", "Reads and searches before the first edit, an episode"},
                               {"searches_before_edit", "Searches before the first edit, an episode"},
                               {"edits", "Edits of an episode"},
                               {"edits_undone", "Edits that were undone later, an episode"},
                               {"refused_share", "Share of calls that were refused", true},
                               {"seconds", "Seconds to the result, without grading"}};

using Curve = std::vector<std::pair<double, double>>;

const Json& part_of(const Json& object, std::string_view name) {
  static const Json kNothing;
  if (!object.is_object()) return kNothing;
  const auto found = object.find(name);
  return found == object.end() ? kNothing : *found;
}

std::map<std::string, Curve> curves_of(const std::vector<Json>& steps, const char* figure) {
  std::map<std::string, Curve> curves;
  for (const Json& line : steps) {
    const Json& kinds = part_of(part_of(line, "behaviour"), "kinds");
    if (!kinds.is_object()) continue;
    for (const auto& [kind, means] : kinds.items()) {
      const Json& value = part_of(means, figure);
      if (value.is_number() && std::isfinite(value.get<double>()))
        curves[kind].emplace_back(number_at(line, "step"), value.get<double>());
    }
  }
  return curves;
}

}  // namespace

std::string behaviour_charts(const std::vector<Json>& steps, size_t window) {
  std::string out;
  for (const Figure& figure : kFigures) {
    const auto curves = curves_of(steps, figure.name);
    const bool has_any = std::ranges::any_of(curves, [](const auto& curve) {
      return std::ranges::any_of(curve.second, [](const auto& point) { return point.second != 0; });
    });
    if (!has_any) continue;
    Chart chart{.title = fmt::format("{} (mean of {} steps)", figure.title, window), .percent = figure.is_share};
    chart.low = 0.0;
    int colour = 0;
    for (const auto& [kind, points] : curves) {
      if (chart.series.size() == kMostKinds) break;
      chart.series.push_back({kind, smoothed(points, window), colour++, false});
    }
    out += line_chart(chart);
  }
  return out;
}

}  // namespace tandem::dashboard
