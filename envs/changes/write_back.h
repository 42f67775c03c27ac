// Writes changes back to a user's folder.
//
// Each file is replaced whole or not at all: a temporary file, on disk before it is renamed. Few are made beside their
// places and synced one by one; many in a folder of their own (StagingFolder), a batch by one sync. All is on disk at
// the end. A process that is killed at any moment leaves each file as it was or as it was to be, and at most one batch
// in its folder, which the next write-back removes. No link is ever followed, neither the file itself nor a folder on
// the way to it. The content on disk is compared with the base of the change right before it is replaced; a file that
// somebody else has changed is left alone and reported as a conflict. What a file has beside its content stays
// (file_attributes.h).
//
// Thread safety: concurrent write-backs to one folder see each other's files as conflicts.
#pragma once

#include <cstdint>
#include <filesystem>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "envs/changes/change.h"

namespace tandem::envs {

enum class WriteOutcome : uint8_t {
  kWritten,   // also where it was so already
  kConflict,  // it is not what the change began from
  kRefused,   // the change says so itself
  kFailed,    // the system would not do it
};
std::string_view to_string(WriteOutcome outcome);

struct WrittenChange {
  WriteOutcome outcome = WriteOutcome::kWritten;
  std::string why;  // of all but kWritten
};

// Which folder it is, whatever has its name later.
struct FolderIdentity {
  uint64_t device = 0, number = 0;
  bool operator==(const FolderIdentity&) const = default;
};
Result<FolderIdentity> identity_of_folder(const std::filesystem::path& folder);

// How many files are made before they take their places.
struct WriteBatches {
  size_t few = 16;  // changes that are synced one by one
  size_t files = 4096, bytes = size_t{64} << 20;
};

// One outcome for each change, in their order. Fails where `root` cannot be opened, or is another folder than
// `expected`; then nothing was changed. Fails also where all was written and the sync at the end was not done.
Result<std::vector<WrittenChange>> write_back(const std::filesystem::path& root, std::span<const Change> changes,
                                              const std::optional<FolderIdentity>& expected = {},
                                              const WriteBatches& batches = {});

// Removes what a write-back to `root` has left that was killed.
void remove_left_behind(const std::filesystem::path& root);

}  // namespace tandem::envs
