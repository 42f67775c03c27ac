#include "weights_sync/blocks.h"

#include <fmt/format.h>

#include <algorithm>

namespace tandem::weights_sync {

Blocks::Blocks(std::vector<model::Weights::WirePart> parts, uint64_t bytes) : parts_(std::move(parts)), bytes_(bytes) {
  for (size_t i = 0; i < parts_.size(); ++i) {
    const auto& part = parts_[i];
    const uint64_t elements = part.bytes / part.element_bytes;
    for (uint64_t first = 0; first < elements; first += kBlockElements) {
      blocks_.push_back({.part = static_cast<uint32_t>(i),
                         .begin = part.begin + first * part.element_bytes,
                         .elements = static_cast<uint32_t>(std::min<uint64_t>(kBlockElements, elements - first)),
                         .element_bytes = part.element_bytes});
    }
  }
}

std::vector<Digest> Blocks::digests(std::span<const std::byte> wire, kernels::ThreadPool& threads) const {
  std::vector<Digest> of_blocks(blocks_.size());
  threads.run(static_cast<int>(blocks_.size()),
              [&](int i) { of_blocks[i] = digest_of(wire.subspan(blocks_[i].begin, blocks_[i].bytes())); });
  return digests_of_parts(of_blocks);
}

std::vector<Digest> Blocks::digests_of_parts(std::span<const Digest> of_blocks) const {
  std::vector<Digest> digests;
  for (size_t begin = 0, end = 0; begin < blocks_.size(); begin = end) {
    while (end < blocks_.size() && blocks_[end].part == blocks_[begin].part) ++end;
    digests.push_back(digest_of(std::as_bytes(of_blocks.subspan(begin, end - begin))));
  }
  return digests;
}

Status Blocks::check(std::span<const Digest> expected, std::span<const Digest> found) const {
  if (expected.size() != found.size())
    return Status::corrupt(fmt::format("{} digests for {} parts", expected.size(), found.size()));
  const auto differs = std::ranges::mismatch(expected, found).in1;
  if (differs == expected.end()) return {};
  const auto& part = parts_[static_cast<size_t>(differs - expected.begin())];
  return Status::corrupt(fmt::format("{} does not match its digest {}", part.name, differs->hex()));
}

Digest digest_of_parts(std::span<const Digest> parts) { return digest_of(std::as_bytes(parts)); }

}  // namespace tandem::weights_sync
