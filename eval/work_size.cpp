#include "eval/work_size.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>

#include "base/text.h"
#include "envs/tasks/lint_count.h"
#include "envs/tasks/tree_diff.h"
#include "eval/cheats.h"
#include "eval/statistics.h"

namespace tandem::eval {
namespace {

using Figure = uint64_t WorkSize::*;
constexpr std::array<std::pair<const char*, Figure>, 5> kFigures = {{{"files", &WorkSize::files},
                                                                     {"binary_files", &WorkSize::binary_files},
                                                                     {"lines_added", &WorkSize::lines_added},
                                                                     {"lines_removed", &WorkSize::lines_removed},
                                                                     {"test_files", &WorkSize::test_files}}};

struct Middle {
  size_t samples = 0;
  double mean = 0, median = 0;
};

std::optional<Middle> middle_of(const std::vector<double>& values) {
  const auto median = quantile(values, 0.5);
  if (!median) return std::nullopt;
  double sum = 0;
  for (const double value : values) sum += value;
  return Middle{values.size(), sum / static_cast<double>(values.size()), *median};
}

Json middle_json(const std::optional<Middle>& middle) {
  if (!middle) return nullptr;
  return {{"samples", middle->samples}, {"mean", middle->mean}, {"median", middle->median}};
}

std::string short_number(double value) {
  return value < 100 ? fmt::format("{:.3g}", value) : fmt::format("{:.0f}", value);
}

}  // namespace

std::optional<WorkSize> work_size(const envs::Task& task, const envs::Collected& begun, const envs::Collected& left,
                                  envs::SandboxBackend& backend) {
  if (!begun.complete) return std::nullopt;
  const auto diff = envs::tree_diff(task, begun, left);
  WorkSize size{.files = diff.files,
                .binary_files = diff.binary_files,
                .lines_added = diff.lines_added,
                .lines_removed = diff.lines_removed,
                .at_least = diff.at_least};
  size.test_files = static_cast<uint64_t>(std::count_if(diff.touched.begin(), diff.touched.end(),
                                                        [&](const auto& path) { return is_test_file(task, path); }));
  if (diff.texts.empty()) return size;
  envs::SandboxHolder holder;
  holder.task = task.name.empty() ? task.spec.id() : task.name;
  holder.grading = true;
  const auto lints = envs::new_lints(task, begun, left, diff.texts, backend, holder);
  if (!lints || !*lints) return size;
  size.new_lints = (*lints)->count;
  size.linted_files = (*lints)->files;
  size.lints_at_least = (*lints)->at_least;
  return size;
}

Json to_json(const std::optional<WorkSize>& size) {
  if (!size) return nullptr;
  Json json = Json::object();
  for (const auto& [name, figure] : kFigures) json[name] = (*size).*figure;
  json["at_least"] = size->at_least;
  json["new_lints"] = size->new_lints ? Json(*size->new_lints) : Json();
  json["linted_files"] = size->linted_files;
  json["lints_at_least"] = size->lints_at_least;
  return json;
}

Result<std::optional<WorkSize>> work_size_from_json(const Json& json) {
  if (json.is_null()) return std::nullopt;
  constexpr uint64_t kMost = uint64_t{1} << 53;
  WorkSize size;
  bool whole = json.is_object();
  const auto number = [&](const char* key, uint64_t& value) {
    const auto found = whole ? json.find(key) : json.end();
    whole = whole && found != json.end() && found->is_number_unsigned() && found->get<uint64_t>() <= kMost;
    if (whole) value = found->get<uint64_t>();
  };
  const auto truth = [&](const char* key, bool& value) {
    const auto found = whole ? json.find(key) : json.end();
    whole = whole && found != json.end() && found->is_boolean();
    if (whole) value = found->get<bool>();
  };
  for (const auto& [name, figure] : kFigures) number(name, size.*figure);
  truth("at_least", size.at_least);
  number("linted_files", size.linted_files);
  truth("lints_at_least", size.lints_at_least);
  whole = whole && json.contains("new_lints");
  if (whole && !json.at("new_lints").is_null()) number("new_lints", size.new_lints.emplace());
  if (!whole) return fail(Status::corrupt("no size of a sample's work"));
  return size;
}

std::vector<double> WorkSizes::values(Figure figure) const {
  std::vector<double> values;
  for (const auto& size : sizes_) values.push_back(static_cast<double>(size.*figure));
  return values;
}

std::vector<double> WorkSizes::lints() const {
  std::vector<double> values;
  for (const auto& size : sizes_) {
    if (size.new_lints) values.push_back(static_cast<double>(*size.new_lints));
  }
  return values;
}

Json WorkSizes::summary() const {
  Json json = {{"samples", sizes_.size()}};
  for (const auto& [name, figure] : kFigures) json[name] = middle_json(middle_of(values(figure)));
  json["new_lints"] = middle_json(middle_of(lints()));
  json["at_least"] = std::count_if(sizes_.begin(), sizes_.end(), [](const auto& size) { return size.at_least; });
  json["lints_at_least"] =
      std::count_if(sizes_.begin(), sizes_.end(), [](const auto& size) { return size.lints_at_least; });
  return json;
}

std::string WorkSizes::text() const {
  if (sizes_.empty()) return "not known";
  std::vector<std::string> medians, means;
  const auto add = [&](const std::vector<double>& values, std::string_view one, std::string_view many) {
    const auto middle = middle_of(values);
    if (!middle) return;
    medians.push_back(fmt::format("{} {}", short_number(middle->median), middle->median == 1 ? one : many));
    means.push_back(short_number(middle->mean));
  };
  add(values(&WorkSize::files), "file", "files");
  add(values(&WorkSize::lines_added), "line added", "lines added");
  add(values(&WorkSize::lines_removed), "removed", "removed");
  add(values(&WorkSize::test_files), "test file", "test files");
  add(lints(), "new lint", "new lints");
  auto text = fmt::format("{} (means {}) in {} sample{}", join(medians, ", "), join(means, ", "), sizes_.size(),
                          sizes_.size() == 1 ? "" : "s");
  if (const auto known = lints().size(); known < sizes_.size()) text += fmt::format(", lints looked for in {}", known);
  const auto bounds = std::count_if(sizes_.begin(), sizes_.end(),
                                    [](const auto& size) { return size.at_least || size.lints_at_least; });
  return bounds > 0 ? text + fmt::format(", in {} of them at least", bounds) : text;
}

std::string work_text(const WorkSizes& all, const WorkSizes& passed) {
  if (all.samples() == 0) return "not known";
  return passed.samples() == 0 ? all.text() : all.text() + "; of those that passed " + passed.text();
}

}  // namespace tandem::eval
