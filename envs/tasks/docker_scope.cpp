#include "envs/tasks/docker_scope.h"

#include <fmt/format.h>

#include <algorithm>
#include <optional>

#include "base/text.h"
#include "envs/tools/shell_words.h"

namespace tandem::envs {

namespace {

constexpr ReferenceRules kAtOnce = {.escape = '\\', .unset = Unset::kEmpty};
// The rules of docker_value.
constexpr ReferenceRules kOfValue = {.escape = '\\', .unset = Unset::kEmpty, .escapes_itself = true};
constexpr ReferenceRules kByShell = {.escape = '\\', .unset = Unset::kKept, .escapes_itself = true};

// A value that BuildKit sets for a build; nothing for other names.
std::optional<std::string> value_of_platform(std::string_view name) {
  if (name == "TARGETPLATFORM" || name == "BUILDPLATFORM") return "linux/" + machine_architecture();
  if (name == "TARGETOS" || name == "BUILDOS") return "linux";
  if (name == "TARGETARCH" || name == "BUILDARCH") return machine_architecture();
  if (name == "TARGETVARIANT" || name == "BUILDVARIANT") return "";
  return std::nullopt;
}

// As they stand: NAME=VALUE pairs, or NAME and VALUE with a space between. An ARG of the name alone has the value of
// `before`, or none.
Result<DockerVariables> pairs_of(const DockerInstruction& each, const auto& before) {
  DockerVariables pairs;
  if (each.rest.empty()) return fail(Status::invalid("names no variable"));
  const bool is_env = each.name == "ENV";
  const size_t equals = each.rest.find('='), space = each.rest.find_first_of(" \t");
  if (is_env && (equals == std::string::npos || space < equals)) {
    if (space == std::string::npos) return fail(Status::invalid(each.rest + " has no value; write NAME=VALUE"));
    auto value = trim(std::string_view(each.rest).substr(space));
    pairs.emplace_back(each.rest.substr(0, space), TRY(docker_value(value, each.escape, true)));
    return pairs;
  }
  std::string_view rest = each.rest;
  while (!(rest = trim(rest)).empty()) {
    const size_t end_of_name = std::min(rest.find_first_of("= \t"), rest.size());
    const std::string name(rest.substr(0, end_of_name));
    rest.remove_prefix(end_of_name);
    if (rest.starts_with('=')) {
      rest.remove_prefix(1);
      pairs.emplace_back(name, TRY(docker_value(rest, each.escape)));
    } else if (is_env) {
      return fail(Status::invalid(fmt::format("{} has no \"=\"; write NAME=VALUE, with quotes around spaces", name)));
    } else {
      const auto known = before.find(name);
      pairs.emplace_back(name,
                         as_docker_value(known == before.end() ? value_of_platform(name).value_or("") : known->second));
    }
  }
  return pairs;
}

}  // namespace

Result<DockerVariables> DockerScope::note(const DockerInstruction& each) {
  DockerVariables pairs = TRY(pairs_of(each, before_from_));
  if (each.name == "ARG") {
    for (auto& [name, value] : pairs) {
      if (const auto given = given_->find(name); given != given_->end()) value = as_docker_value(given->second);
    }
  }
  // Values of one instruction know the variables as they were before it.
  Values values;
  for (auto& [name, value] : pairs) {
    values[name] = TRY(replaced_by(value, kOfValue));
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

Result<std::string> DockerScope::replaced(std::string_view text) const { return replaced_by(text, kAtOnce); }

std::string DockerScope::value(std::string_view noted) const { return replaced_by(noted, kOfValue).value_or(""); }

Result<std::string> DockerScope::replaced_by(std::string_view text, const ReferenceRules& rules) const {
  return without_references(text, rules, [this](std::string_view name) {
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
