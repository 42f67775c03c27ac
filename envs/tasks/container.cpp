#include "envs/tasks/container.h"

#include <fmt/format.h>

#include <algorithm>

#include "base/text.h"

namespace tandem::envs {

void begin_in(const Build& build, const std::string& environment, std::initializer_list<std::string_view> folders,
              const std::string& dockerfile, Task& task, Mistakes& mistakes) {
  static constexpr std::string_view kTaken[] = {"usr", "bin",  "sbin", "lib",   "lib32", "lib64",    "libx32", "etc",
                                                "dev", "proc", "tmp",  "tests", "logs",  "solution", "oracle", ""};
  const auto top = build.workdir.empty() ? "" : split(build.workdir, '/').at(1);
  if (build.workdir != "/workspace" && std::find(std::begin(kTaken), std::end(kTaken), top) != std::end(kTaken)) {
    mistakes.add(dockerfile, 0,
                 fmt::format("WORKDIR \"{}\" cannot be a workspace; choose one like /app", build.workdir));
  } else if (build.workdir != "/workspace") {
    task.links[build.workdir] = "/workspace";
  }
  for (const auto name : folders) task.links[std::string(name)] = "/tmp" + std::string(name);
  task.files = build.files;
  task.programs = build.programs;
  task.setup = {std::string(kMakeLogs)};
  if (!environment.empty()) task.setup.push_back(environment);
  task.setup.insert(task.setup.end(), build.exports.begin(), build.exports.end());
  task.setup.insert(task.setup.end(), build.commands.begin(), build.commands.end());
  for (const auto& package : build.packages) task.needs.push_back("package " + package);
}

std::string exports_of(const Build& build) {
  std::string text;
  for (const auto& each : build.exports) text += each + "; ";
  return text;
}

}  // namespace tandem::envs
