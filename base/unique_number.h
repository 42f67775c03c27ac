// Random 64-bit identifiers of runs and of process lifetimes.
#pragma once

#include <cstdint>

namespace tandem {

// 64 bits from the kernel's random source, never 0: no other call on any machine has returned them.
uint64_t unique_number();

}  // namespace tandem
