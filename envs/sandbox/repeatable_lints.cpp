#include "envs/sandbox/repeatable_lints.h"

#include <fmt/format.h>
#include <sys/stat.h>

#include <algorithm>
#include <array>

#include "base/text.h"
#include "envs/tools/linters.h"
#include "envs/tools/process.h"

namespace tandem::envs {
namespace {

constexpr std::array<std::string_view, 6> kRepeatable = {"ruff",       "pyflakes", "python3 (syntax only)",
                                                         "shellcheck", "node",     "yamllint"};
constexpr const char* kInstalledPackages = "/var/lib/dpkg/status";

bool is_digit_only(std::string_view text) {
  return !text.empty() && text.find_first_not_of("0123456789") == std::string_view::npos;
}

// "PATH:LINE:COLUMN: SEVERITY: MESSAGE (CODE)"; a path may have colons of its own.
bool is_finding(std::string_view line) {
  for (const std::string_view severity : {": error: ", ": warning: ", ": note: "}) {
    const auto place = split(line.substr(0, line.find(severity)), ':');
    if (place.size() >= 3 && is_digit_only(place.back()) && is_digit_only(place[place.size() - 2])) return true;
  }
  return false;
}

// The names at the end of "3 problems in 2 files (ruff, shellcheck)."
std::string_view linters_in(std::string_view line) {
  constexpr std::string_view kEnd = ").";
  for (const std::string_view before : {" file (", " files ("}) {
    const auto begin = line.find(before);
    if (begin != std::string_view::npos && line.ends_with(kEnd) && begin + before.size() + kEnd.size() <= line.size())
      return line.substr(begin + before.size(), line.size() - begin - before.size() - kEnd.size());
  }
  return "";
}

std::string identity_of_file(const std::string& path) {
  struct stat info {};
  if (path.empty() || ::stat(path.c_str(), &info) != 0) return path + "\n";
  return fmt::format("{} {} {} {}.{}\n", path, info.st_ino, info.st_size, info.st_mtim.tv_sec, info.st_mtim.tv_nsec);
}

}  // namespace

bool asks_for_repeatable_lints(const Json& arguments) {
  return arguments.is_object() && (!arguments.contains("only_new") || arguments.at("only_new") == Json(false));
}

bool is_repeatable_report(std::string_view report) {
  if (!report.ends_with('\n')) return false;
  const auto lines = split(report.substr(0, report.size() - 1), '\n');
  const auto names = linters_in(lines.back());
  if (names.empty() || !std::all_of(lines.begin(), lines.end() - 1, is_finding)) return false;
  const auto is_known = [](std::string_view name) {
    return std::find(kRepeatable.begin(), kRepeatable.end(), trim(name)) != kRepeatable.end();
  };
  const auto each = split(names, ',');
  return std::all_of(each.begin(), each.end(), is_known);
}

std::string installed_linters() {
  std::string all = identity_of_file(kInstalledPackages);
  for (const auto& language : lint_languages()) {
    for (const auto& linter : language.linters) all += identity_of_file(find_program(std::string(linter.program)));
  }
  return all;
}

}  // namespace tandem::envs
