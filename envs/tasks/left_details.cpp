#include "envs/tasks/left_details.h"

#include <algorithm>
#include <optional>

#include "base/text.h"
#include "envs/tasks/command_check.h"

namespace tandem::envs {
namespace {

bool is_inside(std::string_view path, std::string_view folder) {
  return path.size() > folder.size() && path.starts_with(folder) && (folder.empty() || path[folder.size()] == '/');
}
bool is_at_or_inside(std::string_view path, std::string_view folder) {
  return path == folder || is_inside(path, folder);
}

// Whether a file or a folder of the check is there, around it or below it.
bool touches(const CommandCheck& check, std::string_view path) {
  const auto does = [&](const std::string& other) { return is_at_or_inside(other, path) || is_inside(path, other); };
  return std::ranges::any_of(check.files, [&](const auto& file) { return does(file.first); }) ||
         std::ranges::any_of(check.folders, does);
}

bool has_steps_up(std::string_view path) {
  const auto parts = split(path, '/');
  return std::ranges::find(parts, "..") != parts.end();
}

// As Files name it, where a link at `path` leads; nothing where that is not among the task's folders. Steps up count at
// its beginning alone: behind a name, which may be a link itself, they lead elsewhere than they read.
std::optional<std::string> target_within(std::string_view path, std::string_view target, const Links& roots) {
  if (target.starts_with('/')) {
    if (has_steps_up(target)) return std::nullopt;
    constexpr std::string_view kWorkspace = "/workspace";
    if (is_at_or_inside(target, kWorkspace))
      return std::string(target.substr(std::min(target.size(), kWorkspace.size() + 1)));
    for (const auto& [root, place] : roots) {
      if (!is_at_or_inside(target, root)) continue;
      if (place == kWorkspace) return std::string(target.substr(std::min(target.size(), root.size() + 1)));
      if (place.starts_with(kOutside)) return std::string(target);
    }
    return std::nullopt;
  }
  std::vector<std::string_view> at = split(path, '/');
  at.pop_back();
  bool named = false;
  for (const auto part : split(target, '/')) {
    if (part.empty() || part == ".") continue;
    if (part != "..") {
      named = true;
      at.push_back(part);
    } else if (named || at.empty()) {
      return std::nullopt;
    } else {
      at.pop_back();
    }
  }
  std::string whole;
  for (const auto part : at) whole.append(whole.empty() && !path.starts_with('/') ? "" : "/").append(part);
  return path.starts_with('/') && whole.starts_with("//") ? whole.substr(1) : whole;
}

bool is_of_the_system(std::string_view target) {
  constexpr std::string_view kFolders[] = {"/usr", "/bin", "/lib", "/lib64", "/sbin", "/etc"};
  return !has_steps_up(target) &&
         std::ranges::any_of(kFolders, [&](std::string_view folder) { return is_inside(target, folder); });
}

// Also of a folder: it may stand in for a package that runs tests, or hold settings of one.
bool steers(const std::string& path) {
  const auto name = std::string_view(path).substr(path.rfind('/') + 1);
  return steers_tests(path) || steers_tests(path + "/__init__.py") || name == ".local" || name == "pyproject.toml" ||
         name == "setup.cfg" || name == "tox.ini";
}

}  // namespace

TreeDetails details_for_tests(TreeDetails left, const CommandCheck& check, const Links& roots) {
  const auto is_of_tests = [&](const std::string& path) { return touches(check, path) || steers(path); };
  std::erase_if(left.links, [&](const auto& link) {
    if (is_of_tests(link.first)) return true;
    if (is_of_the_system(link.second)) return false;
    const auto target = target_within(link.first, link.second, roots);
    return !target || touches(check, *target);
  });
  std::erase_if(left.folders, is_of_tests);
  std::erase_if(left.modes, [&](const auto& entry) { return is_of_tests(entry.first); });
  return left;
}

}  // namespace tandem::envs
