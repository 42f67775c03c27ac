// A version of the weights on its way from the trainer to an engine, whole or as what changed since another: cut into
// chunks, each with a digest.
//
// Pure: no socket, clock or thread. The carrier (wire/messages.capnp) asks what to fetch and brings bytes. What they
// are verified against before anything is sampled is held.h's matter.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "base/digest.h"
#include "base/status.h"
#include "kernels/threads.h"

namespace tandem::weights_sync {

constexpr uint32_t kChunkBytes = 4u << 20;

struct Manifest {
  uint64_t version = 0;
  uint64_t base = 0;  // equal to version: whole
  std::string format = "bf16";
  uint64_t bytes = 0;  // of what is sent
  uint32_t chunk_bytes = kChunkBytes;
  std::vector<Digest> digests;  // of the chunks
  Digest base_digest;           // of a delta: digest_of_parts of its base
  std::vector<Digest> parts;    // of the version, whole (Blocks::digests)
  uint64_t newest = 0;          // version that there is: a receiver goes on from `version` to it
  bool whole() const { return base == version; }
  friend bool operator==(const Manifest&, const Manifest&) = default;
};

// Of `weights`, bytes of that format (model/weights.h), whole, without `parts`.
Manifest make_manifest(uint64_t version, std::span<const std::byte> weights, std::string format = "bf16",
                       kernels::ThreadPool* threads = nullptr);

// The digest of all the bytes, by the digests of their chunks.
Digest digest_of_version(const Manifest& manifest);

// The bytes of one chunk; empty where there is no such chunk.
std::span<const std::byte> chunk_of(const Manifest& manifest, std::span<const std::byte> weights, uint32_t index);

// Puts one version together: Fetching until every chunk has come and matched its digest, then Verified. A chunk that
// does not match is refused, named, and asked for again.
class Receiver {
 public:
  // `target` is where the bytes go and must be as large as the manifest says; it holds nothing usable until
  // verified(). kInvalid names what cannot be taken: another size, format, too many chunks.
  static Result<Receiver> begin(Manifest manifest, std::span<std::byte> target, std::string_view format = "bf16");

  // Up to `window` chunks are asked for at once; each call returns those to request now.
  std::vector<uint32_t> requests(int window);
  // kCorrupt where the bytes are not the chunk's; it will be among the next requests.
  Status accept(uint32_t index, std::span<const std::byte> bytes);
  // Marks outstanding chunks as lost; the next requests include them again.
  void forget_outstanding();

  bool verified() const { return received_ == manifest_.digests.size(); }
  const Manifest& manifest() const { return manifest_; }
  uint64_t refused() const { return refused_; }

 private:
  enum class State : uint8_t { kMissing, kAsked, kHere };
  Receiver(Manifest manifest, std::span<std::byte> target)
      : manifest_(std::move(manifest)), target_(target), chunks_(manifest_.digests.size(), State::kMissing) {}

  Manifest manifest_;
  std::span<std::byte> target_;
  std::vector<State> chunks_;
  size_t received_ = 0, asked_ = 0, first_missing_ = 0;
  uint64_t refused_ = 0;
};

}  // namespace tandem::weights_sync
