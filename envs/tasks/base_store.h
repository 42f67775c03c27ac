// The bases that are kept on this machine, in $XDG_CACHE_HOME/tandem/bases (~/.cache): what there is, and what can go.
//
// A base is in use while a process makes it or opens it, which it notes in DIGEST.lock; the time of that note is when
// it was used last. Thread safety: functions of the disk; any number of processes at once.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "base/file.h"

namespace tandem::envs {

// kUnfit where neither XDG_CACHE_HOME nor HOME says where.
Result<fs::path> bases_folder();

// Held while a base is made (`alone`), or looked at and opened. Waits for others for half an hour at most: kDeadline.
// Opening it notes the use.
Result<FileDescriptor> lock_base(const fs::path& bases, const std::string& digest, bool alone);

struct KeptBase {
  std::string digest;
  fs::path folder;
  uint64_t bytes = 0;
  double used = 0;    // Unix seconds, last
  bool torn = false;  // left by a process that was ended while it made the base
};
// Oldest use first; none where there is no folder.
Result<std::vector<KeptBase>> kept_bases();

// False where it was used since `before` (Unix seconds), or is being made. Its folder goes at once, its files then.
Result<bool> remove_base(const KeptBase& base, double before);

}  // namespace tandem::envs
