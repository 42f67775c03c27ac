#include "envs/tasks/yaml_reader.h"

#include <fmt/format.h>

#include <algorithm>
#include <charconv>
#include <cmath>
#include <map>

#include "base/text.h"

namespace tandem::envs {

void YamlReader::mistake(const YAML::Node& node, const std::string& what) {
  mistakes_.add(file_, node.Mark().line + 1, what);
}

void YamlReader::map(const YAML::Node& node, const std::string& what, std::initializer_list<std::string_view> allowed,
                     const Entry& entry) {
  if (!node.IsMap()) return mistake(node, what + " must be a map of keys to values");
  std::map<std::string, int> seen;
  for (const auto& each : node) {
    if (!each.first.IsScalar()) {
      mistake(each.first, "a key of " + what + " must be a plain word");
      continue;
    }
    const auto& key = each.first.Scalar();
    if (const auto [first, fresh] = seen.emplace(key, each.first.Mark().line + 1); !fresh) {
      mistake(each.first, fmt::format("{} stands twice in {}; first on line {}", key, what, first->second));
      continue;
    }
    if (allowed.size() > 0 && std::find(allowed.begin(), allowed.end(), key) == allowed.end()) {
      mistake(each.first, fmt::format("unknown key {} in {}{}", key, what, did_you_mean(key, allowed)));
      continue;
    }
    entry(key, each.first, each.second);
  }
}

std::optional<std::string> YamlReader::text(const YAML::Node& node, const std::string& what) {
  if (node.IsScalar()) return node.Scalar();
  mistake(node, what + (node.IsNull() ? " has no value" : " must be text"));
  return std::nullopt;
}

std::optional<double> YamlReader::number(const YAML::Node& node, const std::string& what, double least, double most) {
  const auto written = text(node, what);
  if (!written) return std::nullopt;
  double value = 0;
  const auto [end, error] = std::from_chars(written->data(), written->data() + written->size(), value);
  if (error != std::errc() || end != written->data() + written->size() || !std::isfinite(value)) {
    mistake(node, fmt::format("{}: \"{}\" is not a number", what, *written));
    return std::nullopt;
  }
  if (value < least || value > most) {
    mistake(node, fmt::format("{}: {} is outside {} to {}", what, *written, least, most));
    return std::nullopt;
  }
  return value;
}

std::optional<bool> YamlReader::truth(const YAML::Node& node, const std::string& what) {
  const auto written = text(node, what);
  if (!written) return std::nullopt;
  if (*written == "true" || *written == "false") return *written == "true";
  mistake(node, fmt::format("{}: \"{}\" is not true or false", what, *written));
  return std::nullopt;
}

std::vector<std::string> YamlReader::texts(const YAML::Node& node, const std::string& what) {
  std::vector<std::string> found;
  if (!node.IsSequence()) {
    mistake(node, what + " must be a list, each with a dash in front");
    return found;
  }
  for (const auto& item : node) {
    if (auto value = text(item, "an entry of " + what)) found.push_back(std::move(*value));
  }
  return found;
}

}  // namespace tandem::envs
