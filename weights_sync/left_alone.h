// How long a source of weights that failed is left alone.
#pragma once

#include <algorithm>
#include <chrono>

#include "base/clock.h"

namespace tandem::weights_sync {

// 15 s after the first failure in a row, then twice as long each time, up to 8 minutes. `before`: failures before it.
inline Duration left_alone_for(int before) { return std::chrono::seconds(15) * (1 << std::min(before, 5)); }

}  // namespace tandem::weights_sync
