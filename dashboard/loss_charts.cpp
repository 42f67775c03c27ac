#include "dashboard/loss_charts.h"

#include <fmt/format.h>

#include <array>
#include <cmath>
#include <map>
#include <string_view>
#include <utility>

#include "dashboard/html.h"
#include "dashboard/run_files.h"

namespace tandem::dashboard {
namespace {

constexpr size_t kMostCharts = 12, kMostParts = 8;
constexpr int kColour = 4;

// Names that say less than a sentence can.
constexpr std::array<std::pair<std::string_view, std::string_view>, 8> kTitles = {{
    {"demonstration_loss", "Negative log-likelihood of demonstrations, nats a token"},
    {"entropy_coefficient", "Coefficient of the entropy bonus"},
    {"explained_variance", "Share of the returns' variance that the critic explains"},
    {"shared_states", "Share of turns that began in a state that others were in"},
    {"teacher_kl", "Distance from the teacher, KL"},
    {"hinted", "Episodes with a hint"},
    {"teacher_unlikely", "Share of tokens that the teacher holds for unlikely"},
    {"value_loss", "Loss of the critic"},
}};

std::string title_of(std::string_view name) {
  for (const auto& [known, title] : kTitles) {
    if (known == name) return std::string(title);
  }
  return fmt::format("{}, of the loss", name);
}

using Points = std::vector<std::pair<double, double>>;

const Json* object_of(const Json& line, const char* key) {
  const auto found = line.is_object() ? line.find(key) : line.end();
  return line.is_object() && found != line.end() && found->is_object() ? &*found : nullptr;
}

void add(std::map<std::string, Points>& all, const std::string& name, const Json& line, const Json& value) {
  if (value.is_number() && std::isfinite(value.get<double>()))
    all[name].emplace_back(number_at(line, "step"), value.get<double>());
}

}  // namespace

std::string loss_charts(const std::vector<Json>& steps) {
  std::map<std::string, Points> numbers, parts;
  for (const Json& line : steps) {
    if (const Json* metrics = object_of(line, "loss_metrics")) {
      for (const auto& [name, value] : metrics->items()) add(numbers, name, line, value);
    }
    if (const Json* algorithms = object_of(line, "algorithms")) {
      for (const auto& [name, part] : algorithms->items()) {
        if (part.is_object()) add(parts, name, line, part.value("loss", Json()));
      }
    }
  }
  std::string out;
  size_t charts = 0;
  for (auto& [name, points] : numbers) {
    if (++charts > kMostCharts) break;
    out += line_chart({.title = title_of(name), .series = {{name, std::move(points), kColour, false}}});
  }
  Chart by_part{.title = "Loss by algorithm"};
  int colour = 0;
  for (auto& [name, points] : parts) {
    if (by_part.series.size() == kMostParts) break;
    by_part.series.push_back({name, std::move(points), colour++, false});
  }
  return by_part.series.empty() ? out : out + line_chart(by_part);
}

}  // namespace tandem::dashboard
