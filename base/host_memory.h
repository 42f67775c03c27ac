// What memory this machine has free.
#pragma once

#include <cstdint>

namespace tandem {

// Bytes that could be had without swapping: the kernel's MemAvailable, within the limit of the process's control group
// where it has one. 0: the kernel does not say. Any thread.
uint64_t available_memory();

}  // namespace tandem
