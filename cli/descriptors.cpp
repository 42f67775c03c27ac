#include "cli/descriptors.h"

#include <sys/resource.h>

#include <algorithm>

namespace tandem::cli {

void allow_descriptors(size_t wanted) {
  rlimit limit{};
  if (::getrlimit(RLIMIT_NOFILE, &limit) != 0 || limit.rlim_cur >= wanted) return;
  limit.rlim_cur = std::min<rlim_t>(limit.rlim_max, wanted);
  ::setrlimit(RLIMIT_NOFILE, &limit);
}

}  // namespace tandem::cli
