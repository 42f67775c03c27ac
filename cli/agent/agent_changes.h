// From an agent's changes to the user's files: asking, keeping what is replaced, writing back, and taking it back.
#pragma once

#include <functional>
#include <optional>
#include <stop_token>
#include <string>
#include <vector>

#include "base/file.h"
#include "envs/changes/change.h"
#include "envs/changes/undo_store.h"
#include "envs/changes/write_back.h"

namespace tandem::cli {

// Asks on stderr and reads a line from stdin; nothing at its end, or where `stop` was asked for.
using AskLine = std::function<std::optional<std::string>(const std::string& question)>;
AskLine ask_on_terminal(std::stop_token stop);

// Marks those that the user does not want as refused. All where the answer is not yes.
void review(std::vector<envs::Change>& changes, const AskLine& ask);

// Where what is replaced is kept: below the user's folder of state. kInvalid where that lies in the workspace.
Result<envs::UndoStore> undo_store_for(const fs::path& workspace);

// Writes changes back; files to be replaced are saved for undo before anything is written. One outcome for each change.
Result<std::vector<envs::WrittenChange>> write_back_with_undo(const envs::UndoStore& store, const fs::path& workspace,
                                                              const std::string& task,
                                                              const std::vector<envs::Change>& changes,
                                                              const envs::FolderIdentity& folder);

struct UndoOptions {
  bool review = false, dry_run = false, json = false;
};
// The newest change that is kept for the folder is taken back. The result is an exit code.
Result<int> undo_last(const fs::path& workspace, const UndoOptions& options, const AskLine& ask);

}  // namespace tandem::cli
