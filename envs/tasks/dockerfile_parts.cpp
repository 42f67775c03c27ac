#include "envs/tasks/dockerfile_parts.h"

#include <fmt/format.h>

#include <algorithm>
#include <set>

#include "base/file.h"
#include "base/text.h"
#include "envs/tasks/dockerfile_text.h"
#include "envs/tasks/network_use.h"

namespace tandem::envs {

namespace {

constexpr std::string_view kDigits = "0123456789";
constexpr std::string_view kFirstLetters = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz_";
constexpr std::string_view kParameters = "@*#?-$!";  // of a shell

bool has_letter(std::string_view letters, char c) { return letters.find(c) != std::string_view::npos; }

void append_letter(char c, std::string& value) {
  if (c == '$' || c == '\\') value += '\\';
  value += c;
}

// What a dollar at the beginning of `rest` stands for; what was read of it.
size_t append_dollar(std::string_view rest, std::string& value) {
  const char next = rest.size() > 1 ? rest[1] : 0;
  if (has_letter(kDigits, next) && next != 0) return std::min(rest.find_first_not_of(kDigits, 1), rest.size());
  if (has_letter(kParameters, next) && next != 0) return 2;
  size_t end = 1;
  while (end < rest.size() && (has_letter(kFirstLetters, rest[end]) || has_letter(kDigits, rest[end]))) ++end;
  // In braces, since what stands in quotes behind it is no part of its name.
  if (end > 1)
    value.append("${").append(rest.substr(1, end - 1)).append("}");
  else if (next == '{')
    value += '$';
  else
    append_letter('$', value);
  return end;
}

}  // namespace

std::string machine_architecture() {
#if defined(__x86_64__)
  return "amd64";
#elif defined(__aarch64__)
  return "arm64";
#else
  return "unknown";
#endif
}

std::string absolute_path(const std::string& folder, const std::string& path) {
  auto joined = (path.starts_with('/') ? fs::path(path) : fs::path(folder) / path).lexically_normal().string();
  if (joined.size() > 1 && joined.ends_with('/')) joined.pop_back();
  return joined;
}

Result<std::string> docker_value(std::string_view& rest, char escape, bool has_spaces) {
  std::string value;
  char quote = 0;
  size_t i = 0;
  while (i < rest.size() && (quote != 0 || has_spaces || (rest[i] != ' ' && rest[i] != '\t'))) {
    const char c = rest[i];
    const char next = i + 1 < rest.size() ? rest[i + 1] : 0;
    if (quote == 0 ? c == '"' || c == '\'' : c == quote) {
      quote = quote == 0 ? c : 0;
      ++i;
    } else if (c == escape && quote != '\'' && next != 0) {
      const bool is_kept = quote == '"' && next != '"' && next != '$' && next != escape;
      append_letter(is_kept ? c : next, value);
      i += is_kept ? 1 : 2;
    } else if (c == '$' && quote != '\'') {
      i += append_dollar(rest.substr(i), value);
    } else {
      if (c != escape || quote == '\'') append_letter(c, value);  // one at the end takes nothing
      ++i;
    }
  }
  rest.remove_prefix(i);
  if (quote != 0) return fail(Status::invalid(fmt::format("a quote ({}) has no end", quote)));
  return value;
}

std::string as_docker_value(std::string_view text) {
  std::string value;
  for (const char c : text) append_letter(c, value);
  return value;
}

std::string quoted_for_bash(std::string_view value) {
  std::string quoted = "\"";
  for (size_t i = 0; i < value.size(); ++i) {
    if (value[i] == '"' || value[i] == '`') quoted += '\\';
    quoted += value[i];
    if (value[i] == '\\' && i + 1 < value.size()) quoted += value[++i];
  }
  return quoted + "\"";
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

namespace {

// A text in place may be announced in front of it.
std::string program_of(std::string_view command) {
  while (command.starts_with("<<")) {
    command.remove_prefix(std::min(command.find_first_of(" \t"), command.size()));
    command = trim(command);
  }
  const auto program = command.substr(0, command.find_first_of(" \t<"));
  return std::string(program.substr(program.rfind('/') + 1));
}

}  // namespace

// Whether texts in place are its commands.
bool runs_shell(const std::string& command) {
  const auto name = program_of(command);
  return name == "bash" || name == "sh" || name == "dash";
}

bool runs_python(const std::string& command) { return program_of(command).starts_with("python"); }

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
