#include "envs/tasks/needs.h"

#include "base/file.h"
#include "base/text.h"
#include "envs/tasks/python_packages.h"
#include "envs/tools/process.h"

namespace tandem::envs {
namespace {

constexpr std::string_view kPython = "python ";

bool is_there(const std::string& need) {
  constexpr std::string_view kPackage = "package ";
  std::error_code error;
  if (need.starts_with(kPython)) return python_package_is_there(std::string_view(need).substr(kPython.size()));
  if (!need.starts_with(kPackage)) return need.starts_with('/') ? fs::exists(need, error) : !find_program(need).empty();
  const auto list = "/var/lib/dpkg/info/" + need.substr(kPackage.size());
  return fs::exists(list + ".list", error) || fs::exists(list + ":amd64.list", error) ||
         fs::exists(list + ":arm64.list", error);
}

}  // namespace

std::vector<std::string> python_needs(const Task& task) {
  std::vector<std::string> packages;
  for (const auto& need : task.needs) {
    if (need.starts_with(kPython)) packages.push_back(need.substr(kPython.size()));
  }
  return packages;
}

Status check_needs(const Task& task, bool installs_python) {
  std::vector<std::string> missing;
  bool all_of_python = true;
  for (const auto& need : task.needs) {
    const bool of_python = need.starts_with(kPython);
    if ((of_python && installs_python) || is_there(need)) continue;
    missing.push_back(need);
    all_of_python = all_of_python && of_python;
  }
  if (missing.empty()) return {};
  const std::string what = missing.size() == 1 ? "it" : "them";
  return Status::unfit(task.name + " needs " + join(missing, ", ") + ", which this machine does not have")
      .hint(all_of_python ? "install " + what + ", name a registry (env.packages.pypi), or leave the task out"
                          : "install " + what + ", or leave the task out");
}

}  // namespace tandem::envs
