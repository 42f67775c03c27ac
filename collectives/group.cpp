#include "collectives/group.h"

#include <fmt/format.h>

namespace tandem::collectives {

Status check_reduce_scatter(size_t values, size_t part, int ranks) {
  if (part * ranks == values) return {};
  return Status::invalid(fmt::format("reduce_scatter: {} elements are no {} parts of {}", values, ranks, part));
}

Status check_all_gather(size_t part_bytes, size_t all_bytes, int ranks) {
  if (part_bytes * ranks == all_bytes) return {};
  return Status::invalid(
      fmt::format("all_gather: {} bytes of each of {} ranks do not fill {}", part_bytes, ranks, all_bytes));
}

Status check_root(int root, int ranks) {
  if (root >= 0 && root < ranks) return {};
  return Status::invalid(fmt::format("broadcast: rank {} is none of {}", root, ranks));
}

}  // namespace tandem::collectives
