#include "envs/sandbox/read_cache.h"

#include <sodium.h>

#include <cstdlib>

namespace tandem::envs {

ContentDigest content_digest(std::initializer_list<std::string_view> fields) {
  crypto_generichash_state state;
  ContentDigest digest;
  const auto add = [&](const void* bytes, size_t size) {
    crypto_generichash_update(&state, static_cast<const unsigned char*>(bytes), size);
  };
  if (crypto_generichash_init(&state, nullptr, 0, digest.size()) != 0) abort();
  for (const auto field : fields) {
    const uint64_t size = field.size();
    add(&size, sizeof size);
    add(field.data(), field.size());
  }
  crypto_generichash_final(&state, digest.data(), digest.size());
  return digest;
}

std::string_view bytes_of(const ContentDigest& digest) {
  return {reinterpret_cast<const char*>(digest.data()), digest.size()};
}

size_t ReadCache::size_of(const Entry& entry) {
  constexpr size_t kBeside = 256;  // of list, map and allocator
  return sizeof(Entry) + kBeside + entry.outcome.output.size();
}

std::optional<ToolOutcome> ReadCache::find(const ContentDigest& key) {
  std::lock_guard lock(mutex_);
  ++counters_.lookups;
  const auto found = by_key_.find(key);
  if (found == by_key_.end()) return std::nullopt;
  ++counters_.hits;
  entries_.splice(entries_.begin(), entries_, found->second);
  return found->second->outcome;
}

void ReadCache::keep(const ContentDigest& key, const ToolOutcome& outcome) {
  Entry entry{key, outcome};
  const size_t size = size_of(entry);
  if (size > most_bytes_ / 16) return;
  std::lock_guard lock(mutex_);
  if (by_key_.contains(key)) return;
  entries_.push_front(std::move(entry));
  by_key_[key] = entries_.begin();
  counters_.bytes += size;
  for (; counters_.bytes > most_bytes_; entries_.pop_back()) {
    counters_.bytes -= size_of(entries_.back());
    by_key_.erase(entries_.back().key);
  }
}

ReadCache::Counters ReadCache::counters() const {
  std::lock_guard lock(mutex_);
  auto counters = counters_;
  counters.entries = entries_.size();
  return counters;
}

}  // namespace tandem::envs
