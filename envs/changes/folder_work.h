// A sandbox to work on a user's folder in: over the folder itself, or with a copy of it where that cannot be had.
//
// Owns the sandbox. Thread safety: that of the sandbox; changes() comes when no call is made any more.
#pragma once

#include <memory>
#include <string>
#include <variant>
#include <vector>

#include "envs/changes/folder_base.h"
#include "envs/changes/folder_copy.h"

namespace tandem::envs {

class FolderWork {
 public:
  // `spec` without a workspace. kUnfit where there can be no sandbox at all; kInvalid where the folder is too large for
  // a copy and nothing else can be had, with the reason.
  static Result<FolderWork> begin(SandboxBackend& backend, SandboxSpec spec, const std::filesystem::path& folder,
                                  const LeavesOut& leaves_out);

  Sandbox& sandbox() { return *sandbox_; }
  bool is_copy() const { return std::holds_alternative<FolderCopy>(begun_from_); }
  const std::string& note() const { return note_; }  // what the user should know of it; empty: nothing
  // Files and links, without those below .git; sorted.
  std::vector<std::string> names() const;
  Result<std::vector<Change>> changes();
  void end() { sandbox_.reset(); }

 private:
  std::unique_ptr<Sandbox> sandbox_;
  std::variant<FolderBase, FolderCopy> begun_from_;
  std::string note_;
};

}  // namespace tandem::envs
