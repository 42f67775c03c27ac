#include "envs/tasks/docker_scope.h"

#include <algorithm>

#include "base/text.h"
#include "envs/tasks/references.h"
#include "envs/tools/shell_words.h"

namespace tandem::envs {

namespace {

constexpr ReferenceRules kAtOnce = {.escape = '\\', .unset = Unset::kEmpty};
constexpr ReferenceRules kByShell = {.escape = '\\', .unset = Unset::kKept};

// As they stand: NAME=VALUE pairs, or NAME and VALUE with a space between. An ARG of the name alone has the value of
// `before`, or none.
DockerVariables pairs_of(const DockerInstruction& each, const auto& before) {
  DockerVariables pairs;
  const size_t equals = each.rest.find('='), space = each.rest.find_first_of(" \t");
  if (each.name == "ENV" && space != std::string::npos && (equals == std::string::npos || space < equals)) {
    pairs.emplace_back(each.rest.substr(0, space), trim(each.rest.substr(space)));
    return pairs;
  }
  std::string_view rest = each.rest;
  while (!(rest = trim(rest)).empty()) {
    const size_t end_of_name = std::min(rest.find_first_of("= \t"), rest.size());
    const std::string name(rest.substr(0, end_of_name));
    rest.remove_prefix(end_of_name);
    if (!rest.starts_with('=')) {
      const auto known = before.find(name);
      pairs.emplace_back(name, known == before.end() ? "" : known->second);
      continue;
    }
    rest.remove_prefix(1);
    pairs.emplace_back(name, docker_value(rest));
  }
  return pairs;
}

}  // namespace

DockerVariables DockerScope::note(const DockerInstruction& each) {
  DockerVariables pairs = pairs_of(each, before_from_);
  if (each.name == "ARG") {
    for (auto& [name, value] : pairs) {
      if (const auto given = given_->find(name); given != given_->end()) value = given->second;
    }
  }
  // Values of one instruction know the variables as they were before it.
  Values values;
  for (auto& [name, value] : pairs) {
    values[name] = expanded(value);
    if (has_begun_) value = without_arguments(value);
  }
  for (auto& [name, value] : values) {
    if (!has_begun_) {
      before_from_[name] = std::move(value);
    } else if (each.name == "ENV") {
      arguments_.erase(name);
      environment_[name] = std::move(value);
    } else if (!environment_.contains(name)) {
      arguments_[name] = std::move(value);
    }
  }
  return pairs;
}

const std::string* DockerScope::value_of(std::string_view name) const {
  for (const Values* values : {&environment_, has_begun_ ? &arguments_ : &before_from_}) {
    if (const auto found = values->find(name); found != values->end()) return &found->second;
  }
  return nullptr;
}

Result<std::string> DockerScope::replaced(std::string_view text) const {
  return without_references(text, kAtOnce, [this](std::string_view name) {
    const std::string* value = value_of(name);
    return value == nullptr ? std::nullopt : std::optional(*value);
  });
}

std::string DockerScope::without_arguments(std::string_view text) const {
  const auto replaced = without_references(text, kByShell, [this](std::string_view name) {
    const auto found = arguments_.find(name);
    return found == arguments_.end() ? std::nullopt : std::optional(found->second);
  });
  return replaced.value_or(std::string(text));
}

std::string DockerScope::exports() const {
  std::string commands;
  for (const auto& [name, value] : arguments_) commands += "export " + name + "=" + shell_quoted(value) + "; ";
  return commands;
}

std::string DockerScope::variable_of_pip() const {
  for (const char* name : {"PIP_INDEX_URL", "PIP_EXTRA_INDEX_URL", "PIP_FIND_LINKS", "PIP_CONSTRAINT", "PIP_TARGET",
                           "PIP_PREFIX", "UV_INDEX_URL", "UV_DEFAULT_INDEX", "VIRTUAL_ENV"}) {
    if (value_of(name) != nullptr) return name;
  }
  return "";
}

std::string DockerScope::virtual_environment_on(const std::string& path) const {
  constexpr std::string_view kNames[] = {"venv", ".venv", "env", ".env", "virtualenv", ".virtualenv"};
  const std::string* own = value_of("VIRTUAL_ENV");
  for (const auto folder : split(path, ':')) {
    if (!folder.ends_with("/bin")) continue;
    const auto environment = folder.substr(0, folder.size() - 4);
    const auto name = environment.substr(environment.rfind('/') + 1);
    if ((own != nullptr && !environment.empty() && *own == environment) ||
        std::find(std::begin(kNames), std::end(kNames), name) != std::end(kNames) || name.ends_with("venv"))
      return std::string(environment);
  }
  return "";
}

}  // namespace tandem::envs
