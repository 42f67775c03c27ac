#include "envs/tasks/python_packages.h"

#include <algorithm>
#include <cctype>
#include <set>

#include "base/file.h"
#include "base/text.h"

namespace tandem::envs {
namespace {

bool is_one_of(std::string_view word, std::initializer_list<std::string_view> words) {
  return std::find(words.begin(), words.end(), word) != words.end();
}

// PEP 503: one name for "ruamel.yaml", "ruamel_yaml" and "Ruamel-YAML".
std::string normal_name(std::string_view name) {
  std::string normal;
  for (const char c : name) {
    if (c == '-' || c == '_' || c == '.') {
      if (!normal.ends_with('-')) normal += '-';
    } else {
      normal += static_cast<char>(std::tolower(static_cast<unsigned char>(c)));
    }
  }
  return normal;
}

// pip's variables that say where packages come from or go to are not followed. Others are about how it speaks.
bool is_silent_variable(std::string_view word) {
  const auto name = word.substr(0, word.find('='));
  return name.size() < word.size() &&
         is_one_of(name, {"PIP_NO_CACHE_DIR", "PIP_BREAK_SYSTEM_PACKAGES", "PIP_DISABLE_PIP_VERSION_CHECK",
                          "PIP_ROOT_USER_ACTION", "PIP_DEFAULT_TIMEOUT", "PIP_TIMEOUT", "PIP_RETRIES", "PIP_QUIET",
                          "PIP_NO_INPUT", "PIP_PROGRESS_BAR", "PIP_PREFER_BINARY"});
}

// "pip3" of "/usr/bin/pip3.12" and "python3" of "python3.12": there is one Python here.
std::string plain_program(std::string_view word) {
  for (const std::string_view folder : {"/usr/bin/", "/usr/local/bin/", "/bin/"}) {
    if (word.starts_with(folder)) word.remove_prefix(folder.size());
  }
  for (const std::string_view program : {"pip3", "python3"}) {
    if (word.starts_with(program) && word.size() > program.size() + 1 && word[program.size()] == '.' &&
        word.find_first_not_of("0123456789", program.size() + 1) == std::string_view::npos)
      return std::string(program);
  }
  return std::string(word);
}

std::string_view name_of(std::string_view requirement) {
  return requirement.substr(0, requirement.find_first_of("[=<>!~; "));
}

// What Debian and pip install for python3 of this machine.
std::set<std::string> installed_packages() {
  std::set<std::string> names;
  std::error_code error;
  std::vector<fs::path> folders = {"/usr/lib/python3/dist-packages"};
  for (const char* parent : {"/usr/lib", "/usr/local/lib"}) {
    for (const auto& entry : fs::directory_iterator(parent, error)) {
      const auto name = entry.path().filename().string();
      if (!name.starts_with("python3.")) continue;
      for (const char* packages : {"dist-packages", "site-packages"}) folders.push_back(entry.path() / packages);
    }
  }
  for (const auto& folder : folders) {
    for (const auto& entry : fs::directory_iterator(folder, error)) {
      const auto name = entry.path().filename().string();
      // NAME-VERSION.dist-info, NAME-VERSION-py3.11.egg-info
      if (name.ends_with(".dist-info") || name.ends_with(".egg-info"))
        names.insert(normal_name(std::string_view(name).substr(0, name.find('-'))));
    }
  }
  return names;
}

}  // namespace

bool is_python_package(std::string_view requirement) {
  const auto name = name_of(requirement);
  for (const std::string_view file : {".whl", ".tar.gz", ".zip", ".txt"}) {
    if (requirement.ends_with(file)) return false;
  }
  // `six>log` is a file for the shell.
  const size_t more = requirement.find('>');
  if (more != std::string_view::npos &&
      (more + 1 == requirement.size() || std::isalpha(static_cast<unsigned char>(requirement[more + 1]))))
    return false;
  const auto is_word = [](char c) {
    return std::isalnum(static_cast<unsigned char>(c)) || c == '.' || c == '_' || c == '-';
  };
  return !name.empty() && std::isalnum(static_cast<unsigned char>(name[0])) && std::ranges::all_of(name, is_word) &&
         std::ranges::all_of(requirement.substr(name.size()), [&](char c) {
           return is_word(c) || std::string_view("[],=<>!~*+").find(c) != std::string_view::npos;
         });
}

std::optional<std::vector<std::string>> python_packages_of(std::string_view command) {
  std::vector<std::string> words;
  std::string spaced(command);
  std::ranges::replace(spaced, '\t', ' ');
  for (const auto word : split(spaced, ' ')) {
    std::string plain(trim(word));
    std::erase_if(plain, [](char c) { return c == '"' || c == '\''; });
    if (!plain.empty()) words.push_back(std::move(plain));
  }
  size_t at = 0;
  const auto next_is = [&](std::initializer_list<std::string_view> wanted) {
    return at < words.size() && is_one_of(words[at], wanted);
  };
  while (next_is({"sudo", "-H"}) || (at < words.size() && is_silent_variable(words[at]))) ++at;
  if (at < words.size()) words[at] = plain_program(words[at]);
  if (next_is({"python3", "python"}) && at + 2 < words.size() && words[at + 1] == "-m") at += 2;
  if (next_is({"uv"})) ++at;
  if (!next_is({"pip", "pip3"})) return std::nullopt;
  if (++at >= words.size() || words[at] != "install") return std::nullopt;
  std::vector<std::string> packages;
  for (++at; at < words.size(); ++at) {
    const std::string& word = words[at];
    if (is_one_of(word, {"--timeout", "--default-timeout", "--retries", "--root-user-action", "--progress-bar"})) {
      ++at;
    } else if (word.starts_with('-')) {
      const auto option = std::string_view(word).substr(0, word.find('='));
      if (!is_one_of(option, {"--no-cache-dir",
                              "--break-system-packages",
                              "--upgrade",
                              "-U",
                              "--quiet",
                              "-q",
                              "-qq",
                              "--user",
                              "--system",
                              "--no-input",
                              "--prefer-binary",
                              "--disable-pip-version-check",
                              "--timeout",
                              "--default-timeout",
                              "--retries",
                              "--root-user-action",
                              "--ignore-installed",
                              "--force-reinstall",
                              "--no-warn-script-location",
                              "--progress-bar",
                              "--no-cache",
                              "-y"}))
        return std::nullopt;
    } else if (!is_python_package(word)) {
      return std::nullopt;
    } else if (word.size() > name_of(word).size() ||
               !is_one_of(normal_name(name_of(word)), {"pip", "setuptools", "wheel"})) {
      // Those three are there with Python; a version of them is asked for with a reason.
      packages.push_back(word);
    }
  }
  return packages;
}

bool python_package_is_there(std::string_view requirement) {
  static const std::set<std::string> installed = installed_packages();
  return installed.contains(normal_name(name_of(requirement)));
}

}  // namespace tandem::envs
