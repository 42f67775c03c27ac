// Part of the benchmark of environments: changes that are written back to a folder of the user's.
#pragma once

#include <vector>

#include "base/status.h"
#include "bench/figure.h"

namespace tandem::bench {

// New files in a folder for temporary files, each synced by itself and in batches.
Status add_write_backs(std::vector<Figure>& figures);

}  // namespace tandem::bench
