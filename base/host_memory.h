// Free memory of this machine, and how much of it this process and its children may use.
//
// Thread safety: any thread; the files of the kernel are read each time.
#pragma once

#include <cstdint>
#include <string>

#include "base/file.h"

namespace tandem {

// Folders of the kernel's files; tests have their own.
struct MemoryFiles {
  fs::path proc = "/proc", groups = "/sys/fs/cgroup";
};

struct MemoryRoom {
  uint64_t free = 0;   // bytes that could be had without swapping; 0: the kernel does not say
  uint64_t limit = 0;  // bytes that all together may ever have; 0: the kernel does not say
  std::string of;      // what sets the limit: "this machine", "the control group /slurm/job_7"
};
// The smallest of the machine's and those of the process's control group and of the groups around it (both versions).
// Pages of files that can be dropped count as free.
MemoryRoom memory_room(const MemoryFiles& files = {});

// memory_room().free.
uint64_t available_memory();

// RLIMIT_AS: bytes of addresses that each process may have; 0: no limit.
uint64_t address_space_limit();

// Processes that the kernel has killed for lack of memory: of this process's control group and those below it, where
// the kernel counts them, else of the machine.
uint64_t memory_kills(const MemoryFiles& files = {});

// A warning to print before `all` bytes are allocated, `largest` of them by one process. Empty where the kernel reports
// enough. A plan is an upper bound, so less may suffice.
std::string memory_warning(uint64_t all, uint64_t largest, const MemoryRoom& room, uint64_t address_space);

}  // namespace tandem
