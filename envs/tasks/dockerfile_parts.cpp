#include "envs/tasks/dockerfile_parts.h"

#include <algorithm>
#include <set>

#include "base/text.h"
#include "envs/tasks/dockerfile_text.h"
#include "envs/tasks/network_use.h"

namespace tandem::envs {

// A value up to the next space, as Docker reads it: quotes are taken off, a backslash takes the next letter as it is.
// A dollar that names no variable has a backslash before it.
std::string docker_value(std::string_view& rest) {
  std::string value;
  char quote = 0;
  size_t i = 0;
  for (; i < rest.size() && (quote != 0 || (rest[i] != ' ' && rest[i] != '\t')); ++i) {
    const char c = rest[i];
    const bool escapes = c == '\\' && quote != '\'' && i + 1 < rest.size() &&
                         (quote == 0 || std::string_view("\"\\$").find(rest[i + 1]) != std::string_view::npos);
    if (escapes) {
      ++i;
      value.append(rest[i] == '$' ? "\\$" : std::string(1, rest[i]));
    } else if (quote == 0 ? c == '"' || c == '\'' : c == quote) {
      quote = quote == 0 ? c : 0;
    } else if (c == '$' && quote == '\'') {
      value += "\\$";
    } else {
      value += c;
    }
  }
  rest.remove_prefix(i);
  return value;
}

// A folder may stand in quotes.
std::string docker_unquoted(const std::string& text) {
  if (text.find_first_of("\"'") == std::string::npos || text.starts_with('[')) return text;
  return join(docker_words(text).value_or(std::vector<std::string>{text}), " ");
}

// Whether a value speaks of a name that stands before it.
bool names_itself(const DockerVariables& pairs) {
  std::set<std::string> names;
  bool found = false;
  for (const auto& [name, value] : pairs) {
    for (const auto& before : names)
      found |= value.find("$" + before) != std::string::npos || value.find("${" + before) != std::string::npos;
    if (!names.insert(name).second) return false;
  }
  return found;
}

// What ADD unpacks, by its name.
bool is_docker_archive(std::string_view source) {
  constexpr std::string_view kEndings[] = {".tar", ".tar.gz", ".tgz", ".tar.xz", ".txz", ".tar.bz2", ".tbz2"};
  return source.find_first_of("*?[") == std::string_view::npos && source.find("://") == std::string_view::npos &&
         std::any_of(std::begin(kEndings), std::end(kEndings), [&](auto ending) { return source.ends_with(ending); });
}

// Whether /bin/sh of an image is dash, as in those of Debian and Ubuntu and what is made of them.
bool image_has_dash(std::string_view image) {
  constexpr std::string_view kOthers[] = {"alpine", "busybox", "fedora",   "centos", "rocky", "alma",
                                          "amazon", "arch",    "opensuse", "ubi",    "oracle"};
  return std::none_of(std::begin(kOthers), std::end(kOthers),
                      [&](auto other) { return image.find(other) != std::string_view::npos; });
}

// Whether texts in place are its commands.
bool runs_shell(const std::string& command) {
  const auto program = command.substr(0, command.find_first_of(" \t<"));
  const auto name = program.substr(program.rfind('/') + 1);
  return name == "bash" || name == "sh" || name == "dash";
}

bool runs_python(const std::string& command) {
  const auto program = command.substr(0, command.find_first_of(" \t<"));
  return program.substr(program.rfind('/') + 1).starts_with("python");
}

std::string network_user_of_lines(const std::string& command) {
  // The program of `python3 -c "..."` may have several lines.
  if (auto user = network_user(command); !user.empty()) return user;
  for (const auto line : split(command, '\n')) {
    if (auto user = network_user(line); !user.empty()) return user;
  }
  return "";
}

// What makes a virtual environment; "" where nothing does.
std::string maker_of_python(const std::string& command) {
  for (const char* maker : {"-m venv", "-m virtualenv", "uv venv", "conda create"}) {
    if (command.find(maker) != std::string::npos) return maker;
  }
  for (const auto line : split(command, '\n')) {
    if (trim(line).starts_with("virtualenv ") || line.find("&& virtualenv ") != std::string_view::npos)
      return "virtualenv";
  }
  return "";
}

}  // namespace tandem::envs
