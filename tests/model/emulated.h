// Emulated devices of this test program: small, and each with its own order of work.
#pragma once

#include <cstdlib>

namespace tandem::model {

// Before the first of them is opened.
inline const bool kEmulatedDevices = ::setenv("TANDEM_EMULATED", "seed=7,memory=512m", 1) == 0;

}  // namespace tandem::model
