#include "gateway/metrics_merge.h"

#include <fmt/format.h>

#include <iterator>
#include <map>
#include <string_view>
#include <vector>

#include "base/text.h"

namespace tandem::gateway {
namespace {

struct MetricFamily {
  std::string head;  // # HELP and # TYPE
  std::string samples;
};

std::string label_value(std::string_view text) {
  std::string escaped;
  for (const char c : text) {
    if (c == '\\' || c == '"') escaped += '\\';
    if (c == '\n') {
      escaped += "\\n";
    } else {
      escaped += c;
    }
  }
  return escaped;
}

// `name{labels} value` with one label more.
std::string labelled(std::string_view sample, const std::string& process) {
  if (process.empty()) return std::string(sample);
  const size_t name_end = sample.find_first_of("{ ");
  const bool has_labels = sample[name_end] == '{';
  const std::string_view rest = sample.substr(name_end + (has_labels ? 1 : 0));
  const bool empty_labels = has_labels && rest.starts_with('}');
  return fmt::format("{}{{process=\"{}\"{}{}", sample.substr(0, name_end), process,
                     has_labels ? (empty_labels ? "" : ",") : "}", rest);
}

}  // namespace

std::string merge_metrics(std::span<const MetricsPage> pages) {
  std::vector<MetricFamily> families;  // in the order of their first lines
  std::map<std::string, size_t, std::less<>> places;
  const auto family_of = [&](std::string_view name) -> MetricFamily& {
    const auto [place, is_new] = places.try_emplace(std::string(name), families.size());
    if (is_new) families.emplace_back();
    return families[place->second];
  };
  for (const MetricsPage& page : pages) {
    const std::string process = label_value(page.process);
    std::string_view current;                // the family whose samples follow
    std::map<std::string_view, bool> heads;  // of this page: whether they are the first
    for (const std::string_view line : split_lines(page.text)) {
      if (line.starts_with("# HELP ") || line.starts_with("# TYPE ")) {
        const std::string_view rest = line.substr(7);
        current = rest.substr(0, rest.find(' '));
        MetricFamily& family = family_of(current);
        const bool is_first = heads.try_emplace(current, family.head.empty()).first->second;
        if (is_first) fmt::format_to(std::back_inserter(family.head), "{}\n", line);
        continue;
      }
      const size_t name_end = line.find_first_of("{ ");
      if (line.empty() || line.starts_with('#') || name_end == std::string_view::npos || name_end == 0) continue;
      const std::string_view name = line.substr(0, name_end);
      // Samples of a histogram are called after their family.
      MetricFamily& family = family_of(!current.empty() && name.starts_with(current) ? current : name);
      fmt::format_to(std::back_inserter(family.samples), "{}\n", labelled(line, process));
    }
  }
  std::string text;
  for (const MetricFamily& family : families) text += family.head + family.samples;
  return text;
}

}  // namespace tandem::gateway
