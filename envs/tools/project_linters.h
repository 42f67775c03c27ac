// Linters that a project names itself, in a file at the root of the workspace, beside those that are known everywhere.
//
//   .tandemlinters.json   {"mypy": {"files": ["*.py"], "command": ["mypy", "--no-error-summary"]}}
//
// The command gets the files behind its arguments, from the root of the workspace, and prints
// "PATH:LINE[:COLUMN]: [error|warning|note:] MESSAGE" for each problem, as compilers and most linters can. A pattern
// without a slash matches names in any folder.
#pragma once

#include <filesystem>
#include <string>
#include <vector>

#include "envs/tools/glob.h"
#include "envs/tools/linters.h"

namespace tandem::envs {

inline constexpr const char* kProjectLinters = ".tandemlinters.json";

struct ProjectLinter {
  std::string name, program;
  std::vector<std::string> arguments;
  std::vector<Glob> files;

  bool takes(std::string_view path) const;
  Linter as_linter() const;  // refers to this one
};

// Parses such a file. kInvalid, with the mistake in words for a model.
Result<std::vector<ProjectLinter>> parse_project_linters(std::string_view text);
// The linters of the workspace at `root`; none where there is no such file.
Result<std::vector<ProjectLinter>> project_linters(const std::filesystem::path& root);

}  // namespace tandem::envs
