// Resource use of a sandbox's processes, as the kernel counts it.
#pragma once

#include "base/file.h"
#include "envs/sandbox/capabilities.h"

namespace tandem::envs {

// `first` is the pidfd of its first process; zeros where that has ended. By the control group where it has one of ours,
// else the sum of what its processes hold, in which pages that several share count for each.
SandboxUsage usage_of(const FileDescriptor& first);

}  // namespace tandem::envs
