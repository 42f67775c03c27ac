// A process by its pidfd, which unlike its number is never another's.
#pragma once

#include <poll.h>

#include "base/file.h"

namespace tandem::envs {

inline bool has_ended(const FileDescriptor& process) {
  pollfd wait = {process.get(), POLLIN, 0};
  return poll(&wait, 1, 0) > 0 && (wait.revents & POLLIN);
}

}  // namespace tandem::envs
