#include "base/digest.h"

#include <fmt/format.h>
#include <xxhash.h>

namespace tandem {

std::string Digest::hex() const { return fmt::format("{:016x}{:016x}", high, low); }

Digest digest_of(std::span<const std::byte> bytes) {
  const XXH128_hash_t hash = XXH3_128bits(bytes.data(), bytes.size());
  return {hash.low64, hash.high64};
}

Digest digest_of(std::string_view text) { return digest_of(std::as_bytes(std::span(text.data(), text.size()))); }

}  // namespace tandem
