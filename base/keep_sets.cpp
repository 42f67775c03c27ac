#include "base/keep_sets.h"

#include <fmt/format.h>
#include <zstd.h>

#include <algorithm>
#include <memory>

namespace tandem {

namespace {

constexpr int kLevel = 3;

// The lowest seven bits first; the highest bit says that more follow.
void put(std::string& out, uint32_t value) {
  for (; value >= 128; value /= 128) out.push_back(static_cast<char>(value % 128 + 128));
  out.push_back(static_cast<char>(value));
}

class VarintReader {
 public:
  explicit VarintReader(std::string_view bytes) : left_(bytes) {}
  // False where there is no number of 32 bits.
  bool get(uint32_t& value) {
    uint64_t sum = 0;
    for (int shift = 0; shift < 35; shift += 7) {
      if (left_.empty()) return false;
      const auto byte = static_cast<uint8_t>(left_.front());
      left_.remove_prefix(1);
      sum |= static_cast<uint64_t>(byte & 127) << shift;
      if (byte < 128) {
        value = static_cast<uint32_t>(sum);
        return sum <= UINT32_MAX;
      }
    }
    return false;
  }
  size_t left() const { return left_.size(); }

 private:
  std::string_view left_;
};

Status damaged(std::string_view what) {
  return Status::corrupt(fmt::format("the tokens that a trajectory's tokens were drawn from: {}", what));
}

// Memory grows with what is really there, whatever the frame claims.
Result<std::string> decompressed(std::string_view bytes) {
  const std::unique_ptr<ZSTD_DStream, decltype(&ZSTD_freeDStream)> stream(ZSTD_createDStream(), &ZSTD_freeDStream);
  if (!stream) return fail(Status::exhausted("no memory to decompress a trajectory's kept tokens"));
  std::string out;
  std::string piece(ZSTD_DStreamOutSize(), '\0');
  ZSTD_inBuffer in{bytes.data(), bytes.size(), 0};
  size_t left = 1;
  while (left != 0) {
    ZSTD_outBuffer to{piece.data(), piece.size(), 0};
    const size_t before = in.pos;
    left = ZSTD_decompressStream(stream.get(), &to, &in);
    if (ZSTD_isError(left)) return fail(damaged(ZSTD_getErrorName(left)));
    if (to.pos == 0 && in.pos == before && left != 0) return fail(damaged("cut short"));
    if (out.size() + to.pos > kMostKeepBytes) return fail(damaged("too many"));
    out.append(piece.data(), to.pos);
  }
  if (in.pos != in.size) return fail(damaged("bytes behind their end"));
  return out;
}

}  // namespace

std::vector<std::span<const int32_t>> KeepSets::sets() const {
  std::vector<std::span<const int32_t>> sets;
  size_t at = 0;
  for (const uint32_t count : counts) {
    sets.push_back(std::span(ids).subspan(at, count));
    at += count;
  }
  return sets;
}

bool KeepSets::fits(std::span<const int32_t> tokens) const {
  if (empty()) return counts.empty() && ids.empty();
  if (counts.size() != tokens.size() || vocabulary > INT32_MAX) return false;
  size_t all = 0;
  for (const uint32_t count : counts) {
    if (count > kMostOfKeepSet) return false;
    all += count;
  }
  if (all != ids.size()) return false;
  const auto of_tokens = sets();
  for (size_t i = 0; i < tokens.size(); ++i) {
    const auto kept = of_tokens[i];
    if (kept.empty()) continue;
    if (kept.front() < 0 || static_cast<uint32_t>(kept.back()) >= vocabulary) return false;
    if (std::ranges::adjacent_find(kept, [](int32_t a, int32_t b) { return a >= b; }) != kept.end()) return false;
    if (!std::ranges::binary_search(kept, tokens[i])) return false;
  }
  return true;
}

std::string encode(const KeepSets& sets) {
  if (sets.empty()) return {};
  std::string plain;
  for (const auto kept : sets.sets()) {
    put(plain, static_cast<uint32_t>(kept.size()));
    int32_t next = 0;  // the least that may come
    for (const int32_t id : kept) {
      put(plain, static_cast<uint32_t>(id - next));
      next = id + 1;
    }
  }
  std::string small(ZSTD_compressBound(plain.size()), '\0');
  const size_t size = ZSTD_compress(small.data(), small.size(), plain.data(), plain.size(), kLevel);
  small.resize(ZSTD_isError(size) ? 0 : size);  // only without memory; what is empty is refused when it is read
  return small;
}

Result<KeepSets> decode_keep_sets(std::string_view bytes, uint32_t vocabulary, std::span<const int32_t> tokens) {
  KeepSets sets{.vocabulary = vocabulary, .counts = {}, .ids = {}};
  if (sets.empty()) return fail(damaged("of no vocabulary"));
  const std::string plain = TRY(decompressed(bytes));
  VarintReader reader(plain);
  for (size_t i = 0; i < tokens.size(); ++i) {
    uint32_t count = 0;
    if (!reader.get(count) || count > kMostOfKeepSet || count > reader.left()) return fail(damaged("cut short"));
    sets.counts.push_back(count);
    uint64_t next = 0;
    for (uint32_t k = 0; k < count; ++k) {
      uint32_t gap = 0;
      if (!reader.get(gap) || next + gap >= vocabulary) return fail(damaged("outside the vocabulary"));
      sets.ids.push_back(static_cast<int32_t>(next + gap));
      next += gap + 1;
    }
  }
  if (reader.left() > 0) return fail(damaged("more than there are tokens"));
  if (!sets.fits(tokens)) return fail(damaged("without the token itself"));
  return sets;
}

}  // namespace tandem
