// Outcomes of calls that only read, by the content that they read and the words of the call; the least used go first.
//
// Keys are cryptographic digests: what a model writes into files and arguments cannot be made to meet another's. Memory
// is bounded. Thread safety: all of it.
#pragma once

#include <array>
#include <cstdint>
#include <list>
#include <map>
#include <mutex>
#include <optional>
#include <string_view>

#include "envs/tools/tool.h"

namespace tandem::envs {

using ContentDigest = std::array<unsigned char, 32>;

// BLAKE2b of consecutive fields, each with its length.
ContentDigest content_digest(std::initializer_list<std::string_view> fields);
// As a field of another digest.
std::string_view bytes_of(const ContentDigest& digest);

class ReadCache {
 public:
  explicit ReadCache(size_t most_bytes = size_t{64} << 20) : most_bytes_(most_bytes) {}

  std::optional<ToolOutcome> find(const ContentDigest& key);
  // Entries larger than a sixteenth of the cache are not kept.
  void keep(const ContentDigest& key, const ToolOutcome& outcome);

  struct Counters {
    uint64_t lookups = 0, hits = 0;  // of calls whose content was known
    size_t entries = 0, bytes = 0;
  };
  Counters counters() const;

 private:
  struct Entry {
    ContentDigest key;
    ToolOutcome outcome;
  };
  static size_t size_of(const Entry& entry);

  const size_t most_bytes_;
  mutable std::mutex mutex_;
  std::list<Entry> entries_;  // the last used first
  std::map<ContentDigest, std::list<Entry>::iterator> by_key_;
  Counters counters_;
};

}  // namespace tandem::envs
