#include "envs/tasks/docker_scope.h"

#include <algorithm>

#include "base/text.h"

namespace tandem::envs {

DockerVariables DockerScope::note(const DockerInstruction& each) {
  DockerVariables pairs;
  const size_t equals = each.rest.find('='), space = each.rest.find_first_of(" \t");
  if (each.name == "ENV" && space != std::string::npos && (equals == std::string::npos || space < equals)) {
    pairs.emplace_back(each.rest.substr(0, space), trim(each.rest.substr(space)));
  } else {
    std::string_view rest = each.rest;
    while (!(rest = trim(rest)).empty()) {
      const size_t end_of_name = std::min(rest.find_first_of("= \t"), rest.size());
      const std::string name(rest.substr(0, end_of_name));
      rest.remove_prefix(end_of_name);
      if (!rest.starts_with('=')) {
        const auto known = of_from_.find(name);
        pairs.emplace_back(name, known == of_from_.end() ? "" : known->second);
        continue;
      }
      rest.remove_prefix(1);
      pairs.emplace_back(name, docker_value(rest));
    }
  }
  if (each.name == "ARG") {
    for (auto& [name, value] : pairs) {
      if (const auto given = arguments_->find(name); given != arguments_->end()) value = given->second;
    }
  }
  // Values of one instruction know the variables as they were before it.
  std::map<std::string, std::string> values;
  for (const auto& [name, value] : pairs)
    values[name] = has_begun_ ? expanded(value) : docker_expanded(value, of_from_);
  for (const auto& [name, value] : values) (has_begun_ ? variables_ : of_from_)[name] = value;
  return pairs;
}

std::string DockerScope::variable_of_pip() const {
  for (const char* name : {"PIP_INDEX_URL", "PIP_EXTRA_INDEX_URL", "PIP_FIND_LINKS", "PIP_CONSTRAINT", "PIP_TARGET",
                           "PIP_PREFIX", "UV_INDEX_URL", "UV_DEFAULT_INDEX", "VIRTUAL_ENV"}) {
    if (variables_.contains(name)) return name;
  }
  return "";
}

std::string DockerScope::virtual_environment_on(const std::string& path) const {
  constexpr std::string_view kNames[] = {"venv", ".venv", "env", ".env", "virtualenv", ".virtualenv"};
  for (const auto folder : split(path, ':')) {
    if (!folder.ends_with("/bin")) continue;
    const auto environment = folder.substr(0, folder.size() - 4);
    const auto own = variables_.find("VIRTUAL_ENV");
    const auto name = environment.substr(environment.rfind('/') + 1);
    if ((own != variables_.end() && !environment.empty() && own->second == environment) ||
        std::find(std::begin(kNames), std::end(kNames), name) != std::end(kNames) || name.ends_with("venv"))
      return std::string(environment);
  }
  return "";
}

}  // namespace tandem::envs
