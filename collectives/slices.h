// How `count` elements are shared out among ranks: rank r has those from begin(r) to begin(r + 1), as even as can be.
#pragma once

#include <cstddef>

namespace tandem::collectives {

struct Slices {
  size_t count;
  int ranks;
  size_t begin(int rank) const { return count / ranks * rank + count % ranks * rank / ranks; }
  size_t size(int rank) const { return begin(rank + 1) - begin(rank); }
};

}  // namespace tandem::collectives
