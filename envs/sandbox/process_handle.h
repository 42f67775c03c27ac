// A process by its pidfd, which unlike its number is never another's.
#pragma once

#include <poll.h>

#include "base/file.h"

namespace tandem::envs {

// Files and sockets of a killed process close a moment before it counts as ended: `milliseconds` to wait for that.
inline bool has_ended(const FileDescriptor& process, int milliseconds = 0) {
  pollfd wait = {process.get(), POLLIN, 0};
  return poll(&wait, 1, milliseconds) > 0 && (wait.revents & POLLIN);
}

}  // namespace tandem::envs
