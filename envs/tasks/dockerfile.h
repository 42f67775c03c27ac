// The part of a Dockerfile that a sandbox can follow: WORKDIR, COPY of files beside it, ARG, ENV and RUN.
#pragma once

#include <map>
#include <set>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "base/file.h"
#include "envs/tasks/mistakes.h"
#include "envs/tasks/task.h"

namespace tandem::envs {

// The workspace that a Dockerfile describes.
struct Build {
  std::string workdir;            // the last one, where commands begin
  std::set<std::string> folders;  // of the root beside it, that the task has: "/data"
  Files files;                    // absolute paths lie in those
  std::set<std::string> programs;
  std::vector<std::string> exports;          // commands for bash that set what ENV says
  std::vector<std::string> commands;         // of RUN, each with the folder that it runs in
  std::vector<std::string> steps;            // both in the order of the file
  std::vector<std::string> packages;         // of Debian, which RUN would install
  std::vector<std::string> python_packages;  // the same, of Python

  std::string workspace;  // where that is neither the folder nor /workspace

  // The workspace, which is or has the folder; files lie below it.
  std::string root() const {
    if (!workspace.empty()) return workspace;
    return workdir.starts_with("/workspace/") ? "/workspace" : workdir;
  }
};

// Build settings beside the Dockerfile.
struct BuildInputs {
  std::map<std::string, std::string> arguments;  // of ARG; those that the file does not name say nothing
  std::string target;                            // the stage that is wanted; empty: the last
  std::string workdir;                           // where commands begin; empty: as the file says
  std::string workdir_key = "";                  // who says so: "docker-compose has working_dir"
};

// Reads `context`/Dockerfile. `workdir` is where the file, and `inputs`, say none. Whatever cannot be done is added to
// `mistakes`, by the name of the instruction and its line; so is what would show a model one of the `hidden` files or
// folders of the context by name. Of a context that is copied whole they are left out, as is what .dockerignore names.
// FROM says nothing here: the root of a sandbox is that of this machine; there is one user; nothing is started but by
// commands.
Build read_dockerfile(const fs::path& context, const std::string& workdir, std::span<const std::string_view> hidden,
                      Mistakes& mistakes, const BuildInputs& inputs = {});

}  // namespace tandem::envs
