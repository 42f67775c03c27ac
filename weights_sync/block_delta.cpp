// A delta of one block: found, applied, added up, encoded.
#include <fmt/format.h>
#include <zstd.h>

#include <algorithm>
#include <cstring>

#include "weights_sync/delta.h"

namespace tandem::weights_sync {

namespace {

// Above this share of changed elements their positions would take more than the differences that they leave out.
constexpr uint32_t kDenseShare = 8;

template <typename T>
T load(const std::byte* bytes, size_t element) {
  T value;
  std::memcpy(&value, bytes + element * sizeof(T), sizeof value);
  return value;
}

template <typename Work>
auto by_width(uint32_t element_bytes, Work&& work) {
  if (element_bytes == 1) return work(uint8_t{});
  if (element_bytes == 2) return work(uint16_t{});
  return work(uint32_t{});
}

uint32_t mask_of(uint32_t element_bytes) {
  return element_bytes == 4 ? UINT32_MAX : (uint32_t{1} << (8 * element_bytes)) - 1;
}

// Small where the difference is small, whatever its sign.
uint32_t zigzag(uint32_t difference, uint32_t element_bytes) {
  const int spare = 32 - static_cast<int>(8 * element_bytes);
  const auto value = static_cast<int32_t>(difference << spare) >> spare;
  return ((static_cast<uint32_t>(value) << 1) ^ static_cast<uint32_t>(value >> 31)) & mask_of(element_bytes);
}
uint32_t from_zigzag(uint32_t coded, uint32_t element_bytes) {
  return ((coded >> 1) ^ (0u - (coded & 1))) & mask_of(element_bytes);
}

// Positions as steps from one to the next, of 16 bits; this one goes on without a change.
constexpr uint32_t kLongStep = 0xffff;

std::vector<uint32_t> steps_of(std::span<const uint32_t> positions) {
  std::vector<uint32_t> steps;
  steps.reserve(positions.size());
  uint32_t next = 0;
  for (const uint32_t position : positions) {
    uint32_t step = position - next;
    for (; step >= kLongStep; step -= kLongStep) steps.push_back(kLongStep);
    steps.push_back(step);
    next = position + 1;
  }
  return steps;
}

// Bytes of the same place in each number are one plane, compressed where that wins.
enum class Coding : uint8_t { kRaw = 0, kZstd = 1 };
struct PlaneHeader {
  uint32_t bytes = 0;  // as stored
  Coding coding = Coding::kRaw;
  uint8_t reserved[3] = {};
};
struct BlockHeader {
  uint32_t steps = 0;  // 0: every element
  uint32_t changes = 0;
};
static_assert(sizeof(PlaneHeader) == 8 && sizeof(BlockHeader) == 8);

void put(std::vector<std::byte>& out, const void* bytes, size_t count) {
  const auto* const from = static_cast<const std::byte*>(bytes);
  out.insert(out.end(), from, from + count);
}

void put_planes(std::vector<std::byte>& out, std::span<const uint32_t> numbers, uint32_t planes) {
  constexpr int kLevel = 1;
  std::vector<std::byte> plane(numbers.size()), smaller(ZSTD_compressBound(numbers.size()));
  for (uint32_t p = 0; p < planes; ++p) {
    for (size_t i = 0; i < numbers.size(); ++i) plane[i] = static_cast<std::byte>(numbers[i] >> (8 * p));
    const size_t size = ZSTD_compress(smaller.data(), smaller.size(), plane.data(), plane.size(), kLevel);
    const bool wins = !ZSTD_isError(size) && size < plane.size();
    const PlaneHeader header{.bytes = static_cast<uint32_t>(wins ? size : plane.size()),
                             .coding = wins ? Coding::kZstd : Coding::kRaw};
    put(out, &header, sizeof header);
    put(out, wins ? smaller.data() : plane.data(), header.bytes);
  }
}

Status corrupt(std::string_view why) { return Status::corrupt(fmt::format("a delta of weights: {}", why)); }

// Takes what it reads from the front of `bytes`.
Result<std::vector<uint32_t>> take_planes(std::span<const std::byte>& bytes, size_t count, uint32_t planes) {
  std::vector<uint32_t> numbers(count);
  std::vector<std::byte> plane(count);
  for (uint32_t p = 0; p < planes; ++p) {
    PlaneHeader header;
    if (bytes.size() < sizeof header) return fail(corrupt("a block ends in a header"));
    std::memcpy(&header, bytes.data(), sizeof header);
    bytes = bytes.subspan(sizeof header);
    if (header.bytes > bytes.size()) return fail(corrupt("a block ends in a plane"));
    const auto stored = bytes.first(header.bytes);
    bytes = bytes.subspan(header.bytes);
    if (header.coding == Coding::kRaw) {
      if (stored.size() != count) return fail(corrupt(fmt::format("{} bytes for {} numbers", stored.size(), count)));
      std::ranges::copy(stored, plane.begin());
    } else if (header.coding == Coding::kZstd) {
      const size_t size = ZSTD_decompress(plane.data(), plane.size(), stored.data(), stored.size());
      if (ZSTD_isError(size) || size != count)
        return fail(corrupt(ZSTD_isError(size) ? ZSTD_getErrorName(size) : "a plane of another size"));
    } else {
      return fail(corrupt(fmt::format("coding {} is not known", static_cast<int>(header.coding))));
    }
    for (size_t i = 0; i < count; ++i) numbers[i] |= static_cast<uint32_t>(plane[i]) << (8 * p);
  }
  return numbers;
}

}  // namespace

BlockDelta difference(const Block& block, std::span<const std::byte> before, std::span<const std::byte> after) {
  return by_width(block.element_bytes, [&](auto width) {
    using T = decltype(width);
    constexpr size_t kInWord = sizeof(uint64_t) / sizeof(T);
    BlockDelta delta;
    const size_t words = block.elements / kInWord;
    const auto look = [&](size_t element) {
      const T old_code = load<T>(before.data(), element), new_code = load<T>(after.data(), element);
      if (old_code == new_code) return;
      delta.positions.push_back(static_cast<uint32_t>(element));
      delta.differences.push_back(static_cast<T>(new_code - old_code));
    };
    for (size_t word = 0; word < words; ++word) {
      if (load<uint64_t>(before.data(), word) == load<uint64_t>(after.data(), word)) continue;
      for (size_t i = 0; i < kInWord; ++i) look(word * kInWord + i);
    }
    for (size_t element = words * kInWord; element < block.elements; ++element) look(element);
    return delta;
  });
}

void apply(const Block& block, const BlockDelta& delta, std::span<std::byte> bytes) {
  by_width(block.element_bytes, [&](auto width) {
    using T = decltype(width);
    for (size_t i = 0; i < delta.differences.size(); ++i) {
      const size_t element = delta.every ? i : delta.positions[i];
      const T value = static_cast<T>(load<T>(bytes.data(), element) + delta.differences[i]);
      std::memcpy(bytes.data() + element * sizeof(T), &value, sizeof value);
    }
  });
}

BlockDelta fold(const Block& block, const BlockDelta& first, const BlockDelta& second) {
  const uint32_t mask = mask_of(block.element_bytes);
  BlockDelta both;
  const auto add = [&](uint32_t position, uint32_t difference) {
    if ((difference & mask) == 0) return;
    both.positions.push_back(position);
    both.differences.push_back(difference & mask);
  };
  const auto position = [](const BlockDelta& delta, size_t i) {
    return i >= delta.differences.size() ? UINT32_MAX : delta.every ? static_cast<uint32_t>(i) : delta.positions[i];
  };
  for (size_t a = 0, b = 0; a < first.differences.size() || b < second.differences.size();) {
    const uint32_t in_first = position(first, a), in_second = position(second, b);
    const uint32_t at = std::min(in_first, in_second);
    uint32_t sum = 0;
    if (in_first == at) sum += first.differences[a++];
    if (in_second == at) sum += second.differences[b++];
    add(at, sum);
  }
  return both;
}

std::vector<std::byte> encode(const Block& block, const BlockDelta& delta) {
  std::vector<std::byte> out;
  const bool every = delta.every || delta.differences.size() > block.elements / kDenseShare;
  std::vector<uint32_t> coded;
  if (every && !delta.every) {
    coded.resize(block.elements);
    for (size_t i = 0; i < delta.positions.size(); ++i)
      coded[delta.positions[i]] = zigzag(delta.differences[i], block.element_bytes);
  } else {
    coded.reserve(delta.differences.size());
    for (const uint32_t d : delta.differences) coded.push_back(zigzag(d, block.element_bytes));
  }
  const auto steps = every ? std::vector<uint32_t>() : steps_of(delta.positions);
  const BlockHeader header{.steps = static_cast<uint32_t>(steps.size()),
                           .changes = static_cast<uint32_t>(coded.size())};
  put(out, &header, sizeof header);
  if (!every) put_planes(out, steps, 2);
  put_planes(out, coded, block.element_bytes);
  return out;
}

Result<BlockDelta> decode(const Block& block, std::span<const std::byte> bytes) {
  BlockHeader header;
  if (bytes.size() < sizeof header) return fail(corrupt("a block ends in its header"));
  std::memcpy(&header, bytes.data(), sizeof header);
  bytes = bytes.subspan(sizeof header);
  BlockDelta delta;
  delta.every = header.steps == 0;
  if (header.changes == 0 || header.changes > block.elements || (delta.every && header.changes != block.elements) ||
      header.steps > header.changes + block.elements / kLongStep)
    return fail(corrupt(fmt::format("{} changes in {} steps, of a block of {} elements", header.changes, header.steps,
                                    block.elements)));
  if (!delta.every) {
    uint64_t next = 0;
    for (const uint32_t step : TRY(take_planes(bytes, header.steps, 2))) {
      next += step;
      if (step == kLongStep) continue;
      if (next >= block.elements || delta.positions.size() == header.changes)
        return fail(corrupt("its positions leave a block"));
      delta.positions.push_back(static_cast<uint32_t>(next++));
    }
    if (delta.positions.size() != header.changes) return fail(corrupt("a block has fewer positions than changes"));
  }
  delta.differences = TRY(take_planes(bytes, header.changes, block.element_bytes));
  for (uint32_t& d : delta.differences) d = from_zigzag(d, block.element_bytes);
  if (!bytes.empty()) return fail(corrupt(fmt::format("{} bytes follow a block", bytes.size())));
  return delta;
}

}  // namespace tandem::weights_sync
