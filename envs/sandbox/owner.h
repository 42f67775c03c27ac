// Who has made a container, a folder for one or a control group, so that what a killed process left is known and
// nothing else is taken for that.
#pragma once

#include <string>
#include <string_view>

namespace tandem::envs {

// This process, as no other one was or will be: "BOOT.NAMESPACE.PID.START", of letters, digits and dots.
std::string this_owner();

// Whether that process is known to have ended. One of another namespace of processes counts as alive, as does what is
// no owner at all: it may be, and this process cannot see it.
bool owner_is_gone(std::string_view owner);

}  // namespace tandem::envs
