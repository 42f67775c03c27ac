// Extracts the last commit of git repositories to a folder beside the workspace.
#pragma once

#include <filesystem>
#include <set>
#include <string>

#include "base/clock.h"
#include "envs/tools/tool.h"

namespace tandem::envs {

// A folder in the temporary one that is removed with this. Thread safety: none.
class CommittedFiles {
 public:
  // Writes for each repository in the workspace that one of `files` is in all that its HEAD holds, at the same paths
  // below root(). Nothing in the workspace is written, the index of the repository neither. kNotFound where there is no
  // repository with a commit; kDeadline, kUnavailable or kUnfit where git did not do it, is not there, or the disk is
  // full.
  static Result<CommittedFiles> write_out(const ToolContext& context, const std::set<std::string>& files,
                                          Time deadline);
  ~CommittedFiles();
  CommittedFiles(CommittedFiles&& other) noexcept : folder_(std::exchange(other.folder_, {})) {}
  CommittedFiles& operator=(CommittedFiles&&) = delete;

  std::filesystem::path root() const { return folder_ / "files"; }

 private:
  explicit CommittedFiles(std::filesystem::path folder) : folder_(std::move(folder)) {}

  std::filesystem::path folder_;
};

}  // namespace tandem::envs
