// Digests of files as registries give them: SHA-256 and SHA-512.
#pragma once

#include <sodium.h>

#include <string>
#include <string_view>

#include "base/status.h"

namespace tandem::envs {

struct PackageDigest {
  enum class Kind : uint8_t { kNone, kSha256, kSha512 };
  Kind kind = Kind::kNone;
  std::string hex = {};  // in small letters

  explicit operator bool() const { return kind != Kind::kNone; }
  // "sha256-ab..."
  std::string to_string() const { return (kind == Kind::kSha512 ? "sha512-" : "sha256-") + hex; }
  // kNone where it is not of that kind.
  static PackageDigest sha256(std::string_view hex);
  // Parses npm's "sha512-BASE64 sha1-..": the strongest supported digest.
  static PackageDigest of_integrity(std::string_view text);
  friend bool operator==(const PackageDigest&, const PackageDigest&) = default;
};

// Both digests of bytes that come in pieces. Thread safety: none.
class PackageHasher {
 public:
  PackageHasher();
  void add(std::string_view bytes);
  // Once, at the end.
  void finish();
  const std::string& sha256() const { return sha256_; }
  bool is(const PackageDigest& digest) const;

 private:
  crypto_hash_sha256_state short_{};
  crypto_hash_sha512_state long_{};
  std::string sha256_, sha512_;
};

std::string sha256_of(std::string_view bytes);

}  // namespace tandem::envs
