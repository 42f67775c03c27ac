#include "rollout/agent/endpoint_names.h"

#include <algorithm>
#include <cctype>
#include <set>
#include <vector>

namespace tandem::rollout {
namespace {

constexpr size_t kLongestName = 64;

bool fits(char c) { return std::isalnum(static_cast<unsigned char>(c)) != 0 || c == '_' || c == '-'; }

std::string fitting(std::string_view name) {
  std::string plain(name.substr(0, kLongestName));
  std::replace_if(
      plain.begin(), plain.end(), [](char c) { return !fits(c); }, '_');
  return plain.empty() ? "_" : plain;
}

std::string name_of(const Json& tool) {
  const auto function = tool.find("function");
  if (function == tool.end() || !function->is_object()) return "";
  const auto name = function->find("name");
  return name != function->end() && name->is_string() ? name->get<std::string>() : "";
}

}  // namespace

EndpointNames::EndpointNames(const Json& tools) {
  std::vector<std::string> others;
  std::set<std::string> taken;
  for (const auto& tool : tools) {
    const auto name = name_of(tool);
    if (name == fitting(name))
      taken.insert(name);
    else
      others.push_back(name);
  }
  for (const auto& name : others) {
    auto candidate = fitting(name);
    for (int number = 2; !taken.insert(candidate).second; ++number) {
      const auto end = "_" + std::to_string(number);
      candidate = fitting(name).substr(0, kLongestName - end.size()) + end;
    }
    there_[name] = candidate;
    here_[candidate] = name;
  }
}

Json EndpointNames::renamed(const Json& tools) const {
  Json renamed = tools;
  for (auto& tool : renamed) {
    if (const auto name = there_.find(name_of(tool)); name != there_.end()) tool["function"]["name"] = name->second;
  }
  return renamed;
}

std::string EndpointNames::there(const std::string& name) const {
  const auto found = there_.find(name);
  return found != there_.end() ? found->second : fitting(name);
}

std::string EndpointNames::here(const std::string& name) const {
  const auto found = here_.find(name);
  return found != here_.end() ? found->second : name;
}

}  // namespace tandem::rollout
