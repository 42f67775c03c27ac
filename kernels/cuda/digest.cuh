// XXH3 with 128 bits (Collet, github.com/Cyan4973/xxHash, its specification) of pieces of 1 MiB, and of their digests:
// kernels/digest.h. The eight lanes of a long piece never meet before its end, so each is one thread's.
#pragma once

#include "kernels/cuda/execution.cuh"

namespace tandem::kernels::cuda {

struct Words128 {
  uint64_t low, high;
};

// The arithmetic of XXH3 over one piece. Reads are little-endian, as the machines are; bytes lie at any address.
struct Xxh3 {
  static constexpr int kSecretBytes = 192, kLanes = 8, kStripe = 64, kStripes = 16, kLongFrom = 241;
  static constexpr int64_t kBlock = int64_t{kStripe} * kStripes;
  static constexpr uint64_t kPrime1 = 0x9E3779B185EBCA87, kPrime2 = 0xC2B2AE3D27D4EB4F, kPrime3 = 0x165667B19E3779F9,
                            kPrime4 = 0x85EBCA77C2B2AE63, kPrime5 = 0x27D4EB2F165667C5;
  static constexpr uint64_t kSmall1 = 0x9E3779B1, kSmall2 = 0x85EBCA77, kSmall3 = 0xC2B2AE3D;

  uint64_t secret[kSecretBytes / 8] = {
      0xbe4ba423396cfeb8, 0x1cad21f72c81017c, 0xdb979083e96dd4de, 0x1f67b3b7a4a44072, 0x78e5c0cc4ee679cb,
      0x2172ffcc7dd05a82, 0x8e2443f7744608b8, 0x4c263a81e69035e0, 0xcb00c391bb52283c, 0xa32e531b8b65d088,
      0x4ef90da297486471, 0xd8acdea946ef1938, 0x3f349ce33f76faa8, 0x1d4f0bc7c7bbdcf9, 0x3159b4cd4be0518a,
      0x647378d9c97e9fc8, 0xc3ebd33483acc5ea, 0xeb6313faffa081c5, 0x49daf0b751dd0d17, 0x9e68d429265516d3,
      0xfca1477d58be162b, 0xce31d07ad1b8f88f, 0x280416958f3acb45, 0x7e404bbbcafbd7af,
  };

  TANDEM_HD static uint64_t read(const uint8_t* bytes) {
    uint64_t word;
    memcpy(&word, bytes, sizeof word);
    return word;
  }
  TANDEM_HD static uint64_t read_half(const uint8_t* bytes) {
    uint32_t word;
    memcpy(&word, bytes, sizeof word);
    return word;
  }
  TANDEM_HD uint64_t key(int at) const { return read(reinterpret_cast<const uint8_t*>(secret) + at); }

  TANDEM_HD static Words128 product(uint64_t a, uint64_t b) {
    const unsigned __int128 whole = static_cast<unsigned __int128>(a) * b;
    return {static_cast<uint64_t>(whole), static_cast<uint64_t>(whole >> 64)};
  }
  TANDEM_HD static uint64_t folded(uint64_t a, uint64_t b) {
    const Words128 whole = product(a, b);
    return whole.low ^ whole.high;
  }
  TANDEM_HD static uint64_t reversed(uint64_t word, int bytes) {
    uint64_t result = 0;
    for (int i = 0; i < bytes; ++i) result = result << 8 | (word >> (8 * i) & 0xff);
    return result;
  }
  TANDEM_HD static uint64_t avalanche(uint64_t h) {
    h = (h ^ h >> 37) * 0x165667919E3779F9;
    return h ^ h >> 32;
  }
  TANDEM_HD static uint64_t avalanche64(uint64_t h) {
    h = (h ^ h >> 33) * kPrime2;
    h = (h ^ h >> 29) * kPrime3;
    return h ^ h >> 32;
  }

  // 16 bytes at most.
  TANDEM_HD Words128 tiny(const uint8_t* in, int length) const {
    if (length == 0) return {avalanche64(key(64) ^ key(72)), avalanche64(key(80) ^ key(88))};
    if (length <= 3) {
      const uint32_t mixed = static_cast<uint32_t>(in[0]) << 16 | static_cast<uint32_t>(in[length >> 1]) << 24 |
                             in[length - 1] | static_cast<uint32_t>(length) << 8;
      const auto swapped = static_cast<uint32_t>(reversed(mixed, 4));
      const uint32_t rotated = swapped << 13 | swapped >> 19;
      const auto half = [&](int at) { return key(at) & 0xffffffff; };
      return {avalanche64(mixed ^ half(0) ^ half(4)), avalanche64(rotated ^ half(8) ^ half(12))};
    }
    if (length <= 8) {
      const uint64_t keyed = (read_half(in) + (read_half(in + length - 4) << 32)) ^ key(16) ^ key(24);
      Words128 m = product(keyed, kPrime1 + (static_cast<uint64_t>(length) << 2));
      m.high += m.low << 1;
      m.low ^= m.high >> 3;
      m.low = (m.low ^ m.low >> 35) * 0x9FB21C651E98DF25;
      return {m.low ^ m.low >> 28, avalanche(m.high)};
    }
    const uint64_t low = read(in), high = read(in + length - 8);
    Words128 m = product(low ^ high ^ key(32) ^ key(40), kPrime1);
    m.low += static_cast<uint64_t>(length - 1) << 54;
    const uint64_t keyed = high ^ key(48) ^ key(56);
    m.high += keyed + (keyed & 0xffffffff) * (kSmall2 - 1);
    m.low ^= reversed(m.high, 8);
    Words128 h = product(m.low, kPrime2);
    h.high += m.high * kPrime2;
    return {avalanche(h.low), avalanche(h.high)};
  }

  TANDEM_HD uint64_t mix(const uint8_t* in, int at) const {
    return folded(read(in) ^ key(at), read(in + 8) ^ key(at + 8));
  }
  TANDEM_HD void mix(Words128& sums, const uint8_t* first, const uint8_t* second, int at) const {
    sums.low += mix(first, at);
    sums.low ^= read(second) + read(second + 8);
    sums.high += mix(second, at + 16);
    sums.high ^= read(first) + read(first + 8);
  }
  TANDEM_HD static Words128 finished(const Words128& sums, int length) {
    const uint64_t high = sums.low * kPrime1 + sums.high * kPrime4 + static_cast<uint64_t>(length) * kPrime2;
    return {avalanche(sums.low + sums.high), 0 - avalanche(high)};
  }
  // 17 to 240 bytes.
  TANDEM_HD Words128 medium(const uint8_t* in, int length) const {
    Words128 sums{static_cast<uint64_t>(length) * kPrime1, 0};
    if (length <= 128) {
      for (int from = (length - 1) / 32 * 16; from >= 0; from -= 16) {
        mix(sums, in + from, in + length - 16 - from, from * 2);
      }
      return finished(sums, length);
    }
    for (int from = 0; from < 128; from += 32) mix(sums, in + from, in + from + 16, from);
    sums = {avalanche(sums.low), avalanche(sums.high)};
    for (int from = 128; from + 32 <= length; from += 32) mix(sums, in + from, in + from + 16, 3 + from - 128);
    mix(sums, in + length - 16, in + length - 32, 103);
    return finished(sums, length);
  }

  TANDEM_HD static uint64_t first_of_lane(int lane) {
    const uint64_t starts[kLanes] = {kSmall3, kPrime1, kPrime2, kPrime3, kPrime4, kSmall2, kPrime5, kSmall1};
    return starts[lane];
  }
  TANDEM_HD uint64_t with_stripe(uint64_t sum, const uint8_t* stripe, int lane, int at) const {
    const uint64_t keyed = read(stripe + 8 * lane) ^ key(at + 8 * lane);
    return sum + read(stripe + 8 * (lane ^ 1)) + (keyed & 0xffffffff) * (keyed >> 32);
  }
  // One lane over a whole piece of more than 240 bytes.
  TANDEM_HD uint64_t lane_of(const uint8_t* in, int64_t length, int lane) const {
    uint64_t sum = first_of_lane(lane);
    const int64_t blocks = (length - 1) / kBlock;
    for (int64_t block = 0; block < blocks; ++block) {
      for (int stripe = 0; stripe < kStripes; ++stripe) {
        sum = with_stripe(sum, in + block * kBlock + stripe * kStripe, lane, 8 * stripe);
      }
      sum = (sum ^ sum >> 47 ^ key(kSecretBytes - kStripe + 8 * lane)) * kSmall1;
    }
    const int64_t stripes = (length - 1 - blocks * kBlock) / kStripe;
    for (int stripe = 0; stripe < stripes; ++stripe) {
      sum = with_stripe(sum, in + blocks * kBlock + stripe * kStripe, lane, 8 * stripe);
    }
    return with_stripe(sum, in + length - kStripe, lane, kSecretBytes - kStripe - 7);
  }
  TANDEM_HD uint64_t merged(const uint64_t* lanes, int at, uint64_t sum) const {
    for (int i = 0; i < kLanes; i += 2) sum += folded(lanes[i] ^ key(at + 8 * i), lanes[i + 1] ^ key(at + 8 * i + 8));
    return avalanche(sum);
  }
  TANDEM_HD Words128 joined(const uint64_t* lanes, int64_t length) const {
    const auto size = static_cast<uint64_t>(length);
    return {merged(lanes, 11, size * kPrime1), merged(lanes, kSecretBytes - kStripe - 11, ~(size * kPrime2))};
  }
};

struct DigestOfPieces {
  static constexpr int kThreads = Xxh3::kLanes;
  struct Shared {
    uint64_t lanes[kThreads];
  };
  using Private = Nothing;
  const uint8_t* bytes;
  int64_t count, piece;  // all of them, and of a piece
  Words128* out;
  Xxh3 xxh3;

  TANDEM_HD bool run(int64_t block, int phase, int thread, Shared& shared, Private&) const {
    const uint8_t* in = bytes + block * piece;
    const int64_t left = count - block * piece, length = left < piece ? left : piece;
    if (phase == 0) {
      if (length >= Xxh3::kLongFrom) {
        shared.lanes[thread] = xxh3.lane_of(in, length, thread);
        return true;
      }
      const int few = static_cast<int>(length);
      if (thread == 0) out[block] = few <= 16 ? xxh3.tiny(in, few) : xxh3.medium(in, few);
      return false;
    }
    if (thread == 0) out[block] = xxh3.joined(shared.lanes, length);
    return false;
  }
};

constexpr int64_t kPieceOfDigest = int64_t{1} << 20;
inline size_t digest_workspace(int64_t count) {
  return static_cast<size_t>(pieces(count, kPieceOfDigest)) * sizeof(Words128);
}
template <typename Execution>
int operate(Execution& execution, const TandemCudaDigest& d) {
  if ((!d.bytes && d.count > 0) || !d.result || (!d.workspace && d.count > 0)) return kTandemCudaNull;
  if (d.count < 0) return kTandemCudaSize;
  if (d.workspace_bytes < digest_workspace(d.count)) return kTandemCudaWorkspace;
  Words128* parts = static_cast<Words128*>(d.workspace);
  const int64_t of_parts = static_cast<int64_t>(digest_workspace(d.count));
  const DigestOfPieces each{d.bytes, d.count, kPieceOfDigest, parts, {}};
  const DigestOfPieces all{d.workspace ? reinterpret_cast<const uint8_t*>(parts) : nullptr,
                           of_parts,
                           of_parts,
                           reinterpret_cast<Words128*>(d.result),
                           {}};
  return in_order([&] { return start(execution, each, pieces(d.count, kPieceOfDigest)); },
                  [&] { return start(execution, all, 1); });
}

}  // namespace tandem::kernels::cuda
