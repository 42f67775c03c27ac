// A sandbox as its maker sees it.
#pragma once

#include "base/file.h"

namespace tandem::envs {

struct SpawnedSandbox {
  FileDescriptor socket;   // to its first process, which serves requests (init.h)
  FileDescriptor process;  // a pidfd of that: all of the sandbox ends with it
};

}  // namespace tandem::envs
