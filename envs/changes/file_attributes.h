// Copies attributes of a file, beside content and permissions, to the file that replaces it.
//
// Thread safety: none is needed; the functions work on the descriptors they are given.
#pragma once

#include <sys/stat.h>

#include "base/status.h"

namespace tandem::envs {

// Gives `made` what `replaced` has: owner and group where we may give it away, attributes of the user (user.*), the
// access control list, and the permissions of `mode`. Bits of setuid, setgid and sticky stay where owner and group do
// and `mode` has the permissions of `replaced`: where its content alone is another one. kExhausted or kUnavailable
// where an attribute cannot be carried over; none where the file system knows no such attributes.
Status carry_over_attributes(int replaced, const struct stat& info, int made, mode_t mode);

// Gives `made`, which lies elsewhere yet, what a new file in `folder` has: its default access control list, and its
// group where it hands that down.
Status begin_attributes(int folder, int made, mode_t mode);

}  // namespace tandem::envs
