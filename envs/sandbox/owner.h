// Names the process that made a container, its folder or a control group, so that only leftovers of killed processes
// are removed.
#pragma once

#include <string>
#include <string_view>

namespace tandem::envs {

// A unique name of this process: "BOOT.NAMESPACE.PID.START", of letters, digits and dots.
std::string this_owner();

// Whether that process is known to have ended. One of another namespace of processes counts as alive, as does what is
// no owner at all: it may be, and this process cannot see it.
bool owner_is_gone(std::string_view owner);

}  // namespace tandem::envs
