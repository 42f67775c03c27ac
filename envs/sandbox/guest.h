// The first process of a sandbox in a root that another program has made: bubblewrap, an engine of containers.
//
// It is the program of sandboxes (envs/sandbox/program), started with a hidden argument that is seen before main:
// `--tandem-guest WHERE LABEL`, where WHERE is an inherited descriptor of a Unix stream socket, or the path of one that
// it connects to, and LABEL is there to be seen in its command line. The other side sends what it is to be, and is a
// ServedSandbox from then on.
//
// Whoever starts it has made the namespaces and the root (/workspace, /tmp, /dev, /proc). It takes no other descriptor
// along, and gives up whatever is left to it: limits, Landlock, no_new_privs, the filter. A capability that is left and
// that it cannot drop is an error, as is any other place than that of the first process.
#pragma once

#include <string_view>

#include "base/clock.h"
#include "envs/sandbox/first_process.h"

namespace tandem::envs {

extern const char* const kGuestArgument;

// The first message to a guest. It carries the filter, 4 KiB that take 2 ms to make: who makes sandboxes makes it once.
// kDeadline or kUnavailable where the guest does not take it.
Status send_to_guest(int socket, const FirstProcess& process, Time deadline);

}  // namespace tandem::envs
