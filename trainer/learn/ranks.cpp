#include "trainer/learn/ranks.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <bit>
#include <string>

#include "collectives/slices.h"
#include "kernels/optimizer.h"

namespace tandem::trainer {
namespace {

// Elements of a rank's piece that are summed in one call: it needs as much memory again for each rank.
constexpr size_t kSummedAtOnce = size_t{1} << 20;

}  // namespace

Status check_ranks(int ranks, int slots) {
  if (ranks >= 1 && ranks <= slots && std::has_single_bit(static_cast<unsigned>(ranks))) return {};
  return Status::invalid(
      fmt::format("trainer.ranks must be a power of two, and at most trainer.slots ({}), not {}", slots, ranks));
}

std::vector<Piece> shards_of(size_t elements, int ranks) {
  const collectives::Slices slices{(elements + kernels::kSquaresPiece - 1) / kernels::kSquaresPiece, ranks};
  std::vector<Piece> shards;
  for (int rank = 0; rank < ranks; ++rank) {
    const size_t begin = std::min(elements, slices.begin(rank) * kernels::kSquaresPiece);
    const size_t end = std::min(elements, slices.begin(rank + 1) * kernels::kSquaresPiece);
    shards.push_back({.begin = begin, .count = end - begin});
  }
  return shards;
}

Status Ranks::reduce(std::span<float> values, std::span<const Piece> pieces) {
  if (count() == 1) return {};
  const size_t longest = std::ranges::max_element(pieces, {}, &Piece::count)->count;
  for (size_t done = 0; done < longest; done += kSummedAtOnce) {
    std::vector<Piece> parts;
    for (const Piece& piece : pieces) {
      const size_t first = std::min(done, piece.count);
      parts.push_back({.begin = piece.begin + first, .count = std::min(kSummedAtOnce, piece.count - first)});
    }
    TRY(group_->reduce_pieces(values, parts, kDeadline));
  }
  return {};
}

Status Ranks::gather(const Slice& slice, std::span<const Piece> pieces) {
  if (count() == 1) return {};
  const auto size = static_cast<size_t>(model::bytes_of(slice.dtype));
  std::vector<Piece> bytes;
  for (const Piece& piece : pieces) bytes.push_back({.begin = piece.begin * size, .count = piece.count * size});
  return group_->gather_pieces(slice.bytes, bytes, kDeadline).at(slice.name);
}

Status Ranks::broadcast(std::span<std::byte> bytes) {
  return count() == 1 ? Status() : group_->broadcast(bytes, 0, kDeadline);
}

Status Ranks::agree(const Status& own) {
  if (count() == 1) return own;
  struct Outcome {
    Code code = Code::kOk;
    std::array<char, 1020> words{};
  };
  std::vector<Outcome> outcomes(static_cast<size_t>(count()));
  std::vector<int> owners(outcomes.size());
  for (size_t i = 0; i < owners.size(); ++i) owners[i] = static_cast<int>(i);
  Outcome& mine = outcomes[static_cast<size_t>(rank())];
  mine.code = own.code();
  const std::string words = own.ok() ? "" : own.to_string();
  words.copy(mine.words.data(), mine.words.size() - 1);
  TRY(exchange(std::span(outcomes), owners));
  for (size_t i = 0; i < outcomes.size(); ++i) {
    if (outcomes[i].code == Code::kOk) continue;
    if (static_cast<int>(i) == rank()) return own;
    return Status(outcomes[i].code, fmt::format("rank {} of the trainer: {}", i, outcomes[i].words.data()));
  }
  return {};
}

}  // namespace tandem::trainer
