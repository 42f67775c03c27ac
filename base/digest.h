// A 128-bit content digest (XXH3) for detecting damage and naming content; not for adversaries.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <string_view>

namespace tandem {

struct Digest {
  uint64_t low = 0;
  uint64_t high = 0;
  std::string hex() const;
  friend auto operator<=>(const Digest&, const Digest&) = default;
};

Digest digest_of(std::span<const std::byte> bytes);
Digest digest_of(std::string_view text);

}  // namespace tandem
