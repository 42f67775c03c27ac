// A sandbox as its maker sees it.
#pragma once

#include "base/file.h"

namespace tandem::envs {

struct SpawnedSandbox {
  FileDescriptor socket;   // to its first process, which serves requests (init.h)
  FileDescriptor process;  // a pidfd of that: all of the sandbox ends with it
  FileDescriptor errors;   // a file with what went wrong before that could speak; invalid where there is none
};

}  // namespace tandem::envs
