#include "envs/packages/package_digest.h"

#include <algorithm>
#include <cctype>

#include "base/text.h"

namespace tandem::envs {
namespace {

std::string hex_of_bytes(const unsigned char* bytes, size_t size) {
  std::string hex(size * 2 + 1, '\0');
  sodium_bin2hex(hex.data(), hex.size(), bytes, size);
  hex.pop_back();
  return hex;
}

}  // namespace

PackageDigest PackageDigest::sha256(std::string_view hex) {
  PackageDigest digest{Kind::kSha256, std::string(hex)};
  std::ranges::transform(digest.hex, digest.hex.begin(),
                         [](unsigned char c) { return static_cast<char>(std::tolower(c)); });
  const bool is_hex = std::ranges::all_of(digest.hex, [](unsigned char c) { return std::isxdigit(c) != 0; });
  return hex.size() == 64 && is_hex ? digest : PackageDigest();
}

PackageDigest PackageDigest::of_integrity(std::string_view text) {
  PackageDigest best;
  for (const auto word : split(text, ' ')) {
    const bool longer = word.starts_with("sha512-");
    if (!longer && (!word.starts_with("sha256-") || best)) continue;
    unsigned char bytes[64];
    size_t size = 0;
    const auto base64 = word.substr(7, word.find('?') == std::string_view::npos ? word.npos : word.find('?') - 7);
    if (sodium_base642bin(bytes, sizeof bytes, base64.data(), base64.size(), nullptr, &size, nullptr,
                          sodium_base64_VARIANT_ORIGINAL) != 0 ||
        size != (longer ? 64 : 32))
      continue;
    best = {longer ? Kind::kSha512 : Kind::kSha256, hex_of_bytes(bytes, size)};
    if (longer) break;
  }
  return best;
}

PackageHasher::PackageHasher() {
  crypto_hash_sha256_init(&short_);
  crypto_hash_sha512_init(&long_);
}

void PackageHasher::add(std::string_view bytes) {
  const auto* data = reinterpret_cast<const unsigned char*>(bytes.data());
  crypto_hash_sha256_update(&short_, data, bytes.size());
  crypto_hash_sha512_update(&long_, data, bytes.size());
}

void PackageHasher::finish() {
  unsigned char bytes[crypto_hash_sha512_BYTES];
  crypto_hash_sha256_final(&short_, bytes);
  sha256_ = hex_of_bytes(bytes, crypto_hash_sha256_BYTES);
  crypto_hash_sha512_final(&long_, bytes);
  sha512_ = hex_of_bytes(bytes, crypto_hash_sha512_BYTES);
}

bool PackageHasher::is(const PackageDigest& digest) const {
  return digest.kind == PackageDigest::Kind::kSha512 ? digest.hex == sha512_ : digest && digest.hex == sha256_;
}

std::string sha256_of(std::string_view bytes) {
  PackageHasher hasher;
  hasher.add(bytes);
  hasher.finish();
  return hasher.sha256();
}

}  // namespace tandem::envs
