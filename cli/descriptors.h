// How many files and sockets this process may have open.
#pragma once

#include <cstddef>

namespace tandem::cli {

// The default limit of commands: enough for hundreds of sandboxes, hosts and files.
inline constexpr size_t kDescriptors = 16384;

// Raises the limit to `wanted` where it is lower, or as far as the administrator allows. What is started later inherits
// it; a sandbox sets its own.
void allow_descriptors(size_t wanted);

}  // namespace tandem::cli
