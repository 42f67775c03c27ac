#include "envs/tasks/toml_reader.h"

#include <algorithm>
#include <cctype>
#include <vector>

#include "base/file.h"
#include "base/text.h"
#include "envs/tools/shell_words.h"

namespace tandem::envs {
namespace {

constexpr uint64_t kTomlReaderLargestFile = 1 << 20;

bool is_empty(const toml::node& node) {
  if (const auto* array = node.as_array()) return array->empty();
  if (const auto* table = node.as_table()) return table->empty();
  if (const auto* text = node.as_string()) return text->get().empty();
  return false;
}

}  // namespace

void TomlReader::read(std::span<const TomlKey> keys, const Take& take) {
  const auto text = read_file(file_, kTomlReaderLargestFile);
  if (!text) return mistake(0, text.error().message());
  try {
    walk(toml::parse(*text, file_), "", keys, take);
  } catch (const toml::parse_error& error) {
    mistake(static_cast<int>(error.source().begin.line), std::string(error.description()));
  }
}

void TomlReader::read(const toml::table& table, std::span<const TomlKey> keys, const Take& take) {
  walk(table, "", keys, take);
}

void TomlReader::walk(const toml::table& table, const std::string& prefix, std::span<const TomlKey> keys,
                      const Take& take) {
  for (const auto& [name, node] : table) {
    const auto path = prefix + std::string(name.str());
    const int line = static_cast<int>(name.source().begin.line);
    const auto known = std::find_if(keys.begin(), keys.end(), [&](const TomlKey& key) { return key.path == path; });
    if (known != keys.end()) {
      if (known->support == Support::kRefused && !is_empty(node)) mistake(line, path + " is not supported");
      if (known->support == Support::kRead) take(path, node, line);
      continue;
    }
    const bool section =
        std::any_of(keys.begin(), keys.end(), [&](const TomlKey& key) { return key.path.starts_with(path + "."); });
    if (section && node.is_table()) {
      walk(*node.as_table(), path + ".", keys, take);
      continue;
    }
    std::vector<std::string_view> names;
    for (const auto& key : keys) names.push_back(key.path);
    const auto near = nearest(path, names);
    mistake(line, "unknown key " + path + (near.empty() ? "" : "; did you mean " + near + "?"));
  }
}

std::optional<std::string> without_machine_variable(std::string_view text) {
  const bool is_one = text.starts_with("${") && text.ends_with('}') && text.find('}') == text.size() - 1;
  if (!is_one) return std::string(text);
  const auto inside = text.substr(2, text.size() - 3);
  const size_t name = std::min(
      inside.find_first_not_of("ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789_"), inside.size());
  const auto rest = inside.substr(name);
  // With a default, or with a text where it is set, which it is not.
  if (rest.starts_with(":-")) return std::string(rest.substr(2));
  if (rest.starts_with("-")) return std::string(rest.substr(1));
  return rest.starts_with(":+") || rest.starts_with("+") ? std::optional(std::string()) : std::nullopt;
}

std::string TomlReader::exports(const std::string& path, const toml::node& value, int line) {
  const std::string what = path + " must be a table of names and texts";
  if (!value.is_table()) return mistake(line, what), "";
  std::string exports;
  for (const auto& [name, setting] : *value.as_table()) {
    const int place = static_cast<int>(name.source().begin.line);
    const auto text = setting.value<std::string>();
    const auto fits = [](char c) { return std::isalnum(static_cast<unsigned char>(c)) || c == '_'; };
    if (!text || !std::all_of(name.begin(), name.end(), fits)) {
      mistake(place, what);
    } else if (const auto value = without_machine_variable(*text)) {
      exports += "export " + std::string(name.str()) + "=" + shell_quoted(*value) + "; ";
    }
  }
  return exports;
}

}  // namespace tandem::envs
