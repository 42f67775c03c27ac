#include "weights_sync/delta.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstring>
#include <mutex>
#include <numeric>
#include <utility>

namespace tandem::weights_sync {

namespace {

constexpr char kMagic[4] = {'T', 'D', 'L', 'T'};
constexpr uint32_t kFormat = 1;

// All numbers are little-endian, as the processors are that this runs on.
struct FileHeader {
  char magic[4] = {kMagic[0], kMagic[1], kMagic[2], kMagic[3]};
  uint32_t format = kFormat;
  uint64_t base = 0, version = 0, weight_bytes = 0;
  uint32_t block_elements = kBlockElements;
  uint32_t blocks = 0;  // in this delta
};
struct BlockEntry {
  uint32_t block = 0, bytes = 0;
};
static_assert(sizeof(FileHeader) == 40 && sizeof(BlockEntry) == 8);

void append(std::vector<std::byte>& to, const void* bytes, size_t count) {
  const auto* const from = static_cast<const std::byte*>(bytes);
  to.insert(to.end(), from, from + count);
}

// The first failure of work on several threads.
class Outcome {
 public:
  void keep(const Status& status) {
    if (status.ok()) return;
    const std::scoped_lock lock(mutex_);
    if (status_.ok()) status_ = status;
  }
  Status take() { return std::move(status_); }

 private:
  std::mutex mutex_;
  Status status_;
};

}  // namespace

std::vector<std::byte> Delta::write(const Blocks& blocks) const {
  const FileHeader header{.base = base_,
                          .version = version_,
                          .weight_bytes = blocks.bytes(),
                          .blocks = static_cast<uint32_t>(blocks_.size())};
  std::vector<std::byte> out;
  out.reserve(bytes());
  append(out, &header, sizeof header);
  for (const Encoded& block : blocks_) {
    const BlockEntry entry{.block = block.block, .bytes = static_cast<uint32_t>(block.bytes.size())};
    append(out, &entry, sizeof entry);
  }
  for (const Encoded& block : blocks_) append(out, block.bytes.data(), block.bytes.size());
  return out;
}

size_t Delta::bytes() const {
  return std::accumulate(blocks_.begin(), blocks_.end(), sizeof(FileHeader), [](size_t sum, const Encoded& block) {
    return sum + sizeof(BlockEntry) + block.bytes.size();
  });
}

Result<Delta> Delta::read(const Blocks& blocks, std::span<const std::byte> bytes) {
  const auto refuse = [](const std::string& why) { return fail(Status::corrupt("a delta of weights: " + why)); };
  FileHeader header;
  if (bytes.size() < sizeof header) return refuse("it ends in its header");
  std::memcpy(&header, bytes.data(), sizeof header);
  bytes = bytes.subspan(sizeof header);
  if (std::memcmp(header.magic, kMagic, sizeof kMagic) != 0) return refuse("it does not begin as one");
  if (header.format != kFormat) return refuse(fmt::format("of format {}, this reads {}", header.format, kFormat));
  if (header.weight_bytes != blocks.bytes() || header.block_elements != kBlockElements)
    return refuse(fmt::format("of {} bytes of weights in blocks of {}, here are {} in blocks of {}",
                              header.weight_bytes, header.block_elements, blocks.bytes(), kBlockElements));
  if (header.blocks > blocks.all().size() || bytes.size() / sizeof(BlockEntry) < header.blocks)
    return refuse(fmt::format("it has {} blocks, these weights {}", header.blocks, blocks.all().size()));
  Delta delta(header.base, header.version);
  auto contents = bytes.subspan(header.blocks * sizeof(BlockEntry));
  for (uint32_t i = 0; i < header.blocks; ++i) {
    BlockEntry entry;
    std::memcpy(&entry, bytes.data() + i * sizeof entry, sizeof entry);
    if (entry.block >= blocks.all().size() || (i > 0 && entry.block <= delta.blocks_.back().block))
      return refuse(fmt::format("block {} is out of order", entry.block));
    if (entry.bytes > contents.size()) return refuse(fmt::format("it ends in block {}", entry.block));
    const auto own = contents.first(entry.bytes);
    delta.add(entry.block, {own.begin(), own.end()});
    contents = contents.subspan(entry.bytes);
  }
  if (!contents.empty()) return refuse(fmt::format("{} bytes follow its last block", contents.size()));
  return delta;
}

Status Delta::apply(const Blocks& blocks, std::span<std::byte> wire, kernels::ThreadPool& threads) const {
  Outcome outcome;
  threads.run(static_cast<int>(blocks_.size()), [&](int i) {
    const Block& block = blocks.all()[blocks_[i].block];
    const auto changed = decode(block, blocks_[i].bytes);
    if (!changed) return outcome.keep(changed.error());
    weights_sync::apply(block, *changed, wire.subspan(block.begin, block.bytes()));
  });
  return outcome.take();
}

Result<Delta> Delta::folded_with(const Delta& next, const Blocks& blocks, kernels::ThreadPool& threads) const {
  if (next.base_ != version_)
    return fail(
        Status::invalid(fmt::format("a delta on {} does not follow one that ends at {}", next.base_, version_)));
  struct Pair {
    uint32_t block = 0;
    const Encoded* first = nullptr;
    const Encoded* second = nullptr;
  };
  std::vector<Pair> pairs;
  auto a = blocks_.begin(), b = next.blocks_.begin();
  while (a != blocks_.end() || b != next.blocks_.end()) {
    const uint32_t block =
        std::min(a != blocks_.end() ? a->block : UINT32_MAX, b != next.blocks_.end() ? b->block : UINT32_MAX);
    Pair pair{.block = block};
    if (a != blocks_.end() && a->block == block) pair.first = &*a++;
    if (b != next.blocks_.end() && b->block == block) pair.second = &*b++;
    pairs.push_back(pair);
  }
  std::vector<std::vector<std::byte>> encoded(pairs.size());
  Outcome outcome;
  threads.run(static_cast<int>(pairs.size()), [&](int i) {
    const Pair& pair = pairs[i];
    const Block& block = blocks.all()[pair.block];
    if (pair.first == nullptr || pair.second == nullptr) {
      encoded[i] = (pair.first != nullptr ? pair.first : pair.second)->bytes;
      return;
    }
    const auto first = decode(block, pair.first->bytes), second = decode(block, pair.second->bytes);
    if (!first) return outcome.keep(first.error());
    if (!second) return outcome.keep(second.error());
    const BlockDelta both = fold(block, *first, *second);
    if (both.changes()) encoded[i] = encode(block, both);
  });
  TRY(outcome.take());
  Delta folded(base_, next.version_);
  for (size_t i = 0; i < pairs.size(); ++i) {
    if (!encoded[i].empty()) folded.add(pairs[i].block, std::move(encoded[i]));
  }
  return folded;
}

}  // namespace tandem::weights_sync
