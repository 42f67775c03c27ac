// Undo records: the files that a write-back replaced.
//
// One file a record, below `root`/(digest of the folder's path)/, written whole or not at all and checked by digest
// when it is read. The newest kMostRecords of a folder are kept. The files hold what the user's files held: their
// folder is for the user alone.
//
// Thread safety: none is needed; records of two processes have different names.
#pragma once

#include <cstdint>
#include <filesystem>
#include <string>
#include <vector>

#include "envs/changes/change.h"

namespace tandem::envs {

struct UndoRecord {
  std::filesystem::path workspace;
  double unix_seconds = 0;
  std::string task;
  std::vector<Change> changes;  // as they were carried over; their inverse() puts things back
};

class UndoStore {
 public:
  static constexpr size_t kMostRecords = 20;

  // `root` is made when the first record is written.
  explicit UndoStore(std::filesystem::path root) : root_(std::move(root)) {}

  // Durable when it returns; the path is the record's name. Writing under `name` again replaces it.
  Result<std::filesystem::path> write(const UndoRecord& record, const std::filesystem::path& name = {}) const;
  // Records of a folder, the oldest first.
  std::vector<std::filesystem::path> records(const std::filesystem::path& workspace) const;
  // kCorrupt where it is not what was written.
  static Result<UndoRecord> read(const std::filesystem::path& name);
  static Status remove(const std::filesystem::path& name);

 private:
  std::filesystem::path folder_of(const std::filesystem::path& workspace) const;
  std::filesystem::path root_;
};

// Where the user's state belongs: below $XDG_STATE_HOME, else ~/.local/state. kUnfit where neither is known.
Result<std::filesystem::path> state_folder();

}  // namespace tandem::envs
