// The static program that spawners and sandboxes run, carried within whatever is linked with this library.
#pragma once

#include <string_view>

namespace tandem::envs {

// An executable of this machine; empty in builds that have none (the address sanitizer, no static libraries), where the
// program that is running does its work.
std::string_view sandbox_program();

}  // namespace tandem::envs
