// Changes carried over to a folder of the user.
//
// Each file is replaced whole or not at all: temporary file beside it, fsync, rename. No link is ever followed, neither
// the file itself nor a folder on the way to it. What is on disk is compared with what the change began from right
// before it is replaced: what somebody else has changed meanwhile is left as it is and named.
//
// Thread safety: none is needed; two at once in one folder find each other's work as conflicts.
#pragma once

#include <filesystem>
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

// One outcome for each change, in their order. Fails where `root` cannot be opened; then nothing was changed.
Result<std::vector<WrittenChange>> write_back(const std::filesystem::path& root, std::span<const Change> changes);

}  // namespace tandem::envs
