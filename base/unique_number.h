// Numbers that tell things apart which must never be taken for each other: runs, lives of processes.
#pragma once

#include <cstdint>

namespace tandem {

// 64 bits from the kernel's random source, never 0: no other call on any machine has returned them.
uint64_t unique_number();

}  // namespace tandem
