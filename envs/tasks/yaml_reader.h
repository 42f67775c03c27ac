// Reads YAML that people write, strictly: unknown and doubled keys, wrong types and numbers out of bounds are mistakes
// with file, line and what would be right. Reading goes on after each, so that all are told at once.
//
// Thread safety: none. The reader and its nodes are used by one thread.
#pragma once

#include <yaml-cpp/yaml.h>

#include <functional>
#include <initializer_list>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "envs/tasks/mistakes.h"

namespace tandem::envs {

class YamlReader {
 public:
  YamlReader(std::string file, Mistakes& mistakes) : file_(std::move(file)), mistakes_(mistakes) {}

  void mistake(const YAML::Node& node, const std::string& what);

  // Calls `entry` for each key of a map, once; keys outside of `allowed` (where it is not empty) are mistakes. `what`
  // names the map in words: "the task", "check".
  using Entry = std::function<void(const std::string& key, const YAML::Node& key_node, const YAML::Node& value)>;
  void map(const YAML::Node& node, const std::string& what, std::initializer_list<std::string_view> allowed,
           const Entry& entry);

  // A scalar as it was written; a mistake and nothing for anything else.
  std::optional<std::string> text(const YAML::Node& node, const std::string& what);
  std::optional<double> number(const YAML::Node& node, const std::string& what, double least, double most);
  std::optional<bool> truth(const YAML::Node& node, const std::string& what);
  std::vector<std::string> texts(const YAML::Node& node, const std::string& what);

 private:
  std::string file_;
  Mistakes& mistakes_;
};

}  // namespace tandem::envs
