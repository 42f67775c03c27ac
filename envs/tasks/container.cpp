#include "envs/tasks/container.h"

#include <fmt/format.h>

#include "base/text.h"
#include "envs/tasks/dockerfile_text.h"
#include "envs/tools/shell_words.h"

namespace tandem::envs {

void begin_in(const Build& build, const std::string& environment, std::initializer_list<std::string_view> folders,
              const std::string& dockerfile, Task& task, Mistakes& mistakes) {
  const auto root = build.root();
  const auto top = root.empty() ? "" : split(root, '/').at(1);
  const bool fits = root == "/workspace" || can_be_folder(top) || root.starts_with("/usr/src/");
  if (!fits) {
    mistakes.add(dockerfile, 0,
                 fmt::format("WORKDIR \"{}\" cannot be a workspace; choose one like /app", build.workdir));
  } else if (root != "/workspace") {
    task.links[root] = "/workspace";
  }
  for (const auto& folder : build.folders) task.links[folder] = kOutside + folder;
  for (const auto name : folders) task.links[std::string(name)] = "/tmp" + std::string(name);
  task.files = build.files;
  task.programs = build.programs;
  task.setup = {std::string(kMakeLogs)};
  if (!environment.empty()) task.setup.push_back(environment);
  task.setup.insert(task.setup.end(), build.exports.begin(), build.exports.end());
  task.setup.insert(task.setup.end(), build.commands.begin(), build.commands.end());
  const auto folder = shell_quoted(build.workdir);
  if (build.workdir != "/workspace") task.setup.push_back("mkdir -p " + folder + " && cd " + folder);
  for (const auto& package : build.packages) task.needs.push_back("package " + package);
  for (const auto& package : build.python_packages) task.needs.push_back("python " + package);
}

void add_named_folders(Task& task, std::span<const std::string_view> texts) {
  constexpr size_t kMostLinks = 32;
  for (const auto text : texts) {
    for (const auto& folder : named_folders(text)) {
      if (task.links.size() < kMostLinks) task.links.try_emplace(folder, kOutside + folder);
    }
  }
}

std::string exports_of(const Build& build) {
  std::string text;
  for (const auto& each : build.exports) text += each + "; ";
  return text;
}

}  // namespace tandem::envs
