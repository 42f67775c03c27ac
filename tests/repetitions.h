// How often a test repeats what luck may hide: seldom in every run, often under `scripts/test --long`.
#pragma once

#include <cstdlib>

namespace tandem {

inline int repetitions(int usual, int when_long) { return getenv("TANDEM_LONG_TESTS") ? when_long : usual; }

}  // namespace tandem
