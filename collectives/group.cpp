#include "collectives/group.h"

#include <fmt/format.h>

#include <algorithm>
#include <bit>
#include <vector>

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

Status check_pieces(size_t elements, std::span<const Piece> pieces, int ranks) {
  if (pieces.size() != static_cast<size_t>(ranks))
    return Status::invalid(fmt::format("{} pieces for {} ranks", pieces.size(), ranks));
  std::vector<Piece> ordered(pieces.begin(), pieces.end());
  std::ranges::sort(ordered, {}, &Piece::begin);
  size_t end = 0;
  for (const Piece& piece : ordered) {
    if (piece.count == 0) continue;
    if (piece.begin < end || piece.begin > elements || piece.count > elements - piece.begin) {
      return Status::invalid(fmt::format("the piece of {} elements from {} on is not within {} elements, or another's",
                                         piece.count, piece.begin, elements));
    }
    end = piece.begin + piece.count;
  }
  return {};
}

Status check_tree(int ranks) {
  if (std::has_single_bit(static_cast<unsigned>(ranks))) return {};
  return Status::invalid(fmt::format("reduce_pieces: {} ranks are no binary tree; a power of two is", ranks));
}

}  // namespace tandem::collectives
