// Files as a tar archive (POSIX ustar), the form in which engines take what they build from.
#pragma once

#include <set>
#include <string>

#include "base/status.h"
#include "envs/sandbox/files.h"

namespace tandem::envs {

// The same bytes for the same files, whoever has them: all belong to root and are as old as the epoch. kInvalid where a
// path is too long for the form.
Result<std::string> tar_of(const Files& files, const std::set<std::string>& programs);

}  // namespace tandem::envs
