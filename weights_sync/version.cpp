#include "weights_sync/version.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstring>

namespace tandem::weights_sync {

std::span<const std::byte> chunk_of(const Manifest& manifest, std::span<const std::byte> weights, uint32_t index) {
  const uint64_t begin = uint64_t{index} * manifest.chunk_bytes;
  if (index >= manifest.digests.size() || begin >= weights.size()) return {};
  return weights.subspan(begin, std::min<uint64_t>(manifest.chunk_bytes, weights.size() - begin));
}

Manifest make_manifest(uint64_t version, std::span<const std::byte> weights, std::string format,
                       kernels::ThreadPool* threads) {
  Manifest manifest{.version = version,
                    .base = version,
                    .format = std::move(format),
                    .bytes = weights.size(),
                    .digests = {},
                    .base_digest = {},
                    .parts = {},
                    .newest = version};
  manifest.digests.resize((weights.size() + kChunkBytes - 1) / kChunkBytes);
  const auto take = [&](int i) {
    manifest.digests[i] = digest_of(chunk_of(manifest, weights, static_cast<uint32_t>(i)));
  };
  const int chunks = static_cast<int>(manifest.digests.size());
  if (threads != nullptr)
    threads->run(chunks, take);
  else
    for (int i = 0; i < chunks; ++i) take(i);
  return manifest;
}

Digest digest_of_version(const Manifest& manifest) {
  return tandem::digest_of(std::as_bytes(std::span(manifest.digests)));
}

Result<Receiver> Receiver::begin(Manifest manifest, std::span<std::byte> target, std::string_view format) {
  const auto refuse = [&](std::string why) {
    return fail(Status::invalid(fmt::format("weights {}: {}", manifest.version, why)));
  };
  if (manifest.format != format)
    return refuse(fmt::format("format \"{}\", this model's is {}", manifest.format, format));
  if (manifest.bytes != target.size())
    return refuse(fmt::format("{} bytes, there is room for {}", manifest.bytes, target.size()));
  if (manifest.chunk_bytes == 0 ||
      manifest.digests.size() != (manifest.bytes + manifest.chunk_bytes - 1) / manifest.chunk_bytes) {
    return refuse(fmt::format("{} digests do not fit {} bytes in chunks of {}", manifest.digests.size(), manifest.bytes,
                              manifest.chunk_bytes));
  }
  return Receiver(std::move(manifest), target);
}

std::vector<uint32_t> Receiver::requests(int window) {
  std::vector<uint32_t> wanted;
  for (size_t i = first_missing_; i < chunks_.size() && asked_ < static_cast<size_t>(window); ++i) {
    if (chunks_[i] != State::kMissing) continue;
    chunks_[i] = State::kAsked;
    ++asked_;
    first_missing_ = i + 1;
    wanted.push_back(static_cast<uint32_t>(i));
  }
  return wanted;
}

Status Receiver::accept(uint32_t index, std::span<const std::byte> bytes) {
  if (index >= chunks_.size() || chunks_[index] != State::kAsked) return {};  // twice, or not asked for
  --asked_;
  const auto place = chunk_of(manifest_, target_, index);
  if (bytes.size() != place.size() || digest_of(bytes) != manifest_.digests[index]) {
    chunks_[index] = State::kMissing;
    first_missing_ = std::min<size_t>(first_missing_, index);
    ++refused_;
    return Status::corrupt(fmt::format("weights {}: chunk {} of {} does not match its digest {}", manifest_.version,
                                       index, chunks_.size(), manifest_.digests[index].hex()));
  }
  std::memcpy(target_.data() + uint64_t{index} * manifest_.chunk_bytes, bytes.data(), bytes.size());
  chunks_[index] = State::kHere;
  ++received_;
  return {};
}

void Receiver::forget_outstanding() {
  for (State& chunk : chunks_) {
    if (chunk == State::kAsked) chunk = State::kMissing;
  }
  asked_ = first_missing_ = 0;
}

}  // namespace tandem::weights_sync
