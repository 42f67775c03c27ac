// Which tokens each token of a list was drawn from, where sampling cuts some off: recorded while sampling, taken again
// in training.
//
// Thread safety: as any value.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "base/status.h"

namespace tandem {

// The limits of what is read: tokens of one set, and bytes of all sets of a list before they are compressed.
inline constexpr uint32_t kMostOfKeepSet = 4096;
inline constexpr size_t kMostKeepBytes = size_t{128} << 20;

struct KeepSets {
  uint32_t vocabulary = 0;       // ids are below; 0: nothing is recorded, and both lists are empty
  std::vector<uint32_t> counts;  // [tokens]: of how many the token was drawn; 0: of all, or it was not drawn
  std::vector<int32_t> ids;      // the sets one behind the other, each ascending
  friend bool operator==(const KeepSets&, const KeepSets&) = default;

  bool empty() const { return vocabulary == 0; }
  // One set for each of so many tokens; those that are new are drawn of all.
  void resize(size_t tokens) {
    if (!empty()) counts.resize(tokens, 0);
  }
  // Adds the kept tokens of one token more.
  void append(std::span<const int32_t> kept) {
    if (empty()) return;
    counts.push_back(static_cast<uint32_t>(kept.size()));
    ids.insert(ids.end(), kept.begin(), kept.end());
  }
  // By token; empty: all. Views of `ids`.
  std::vector<std::span<const int32_t>> sets() const;
  // Whether there is a set for each of these tokens, ascending, within the vocabulary, and with the token in it.
  bool fits(std::span<const int32_t> tokens) const;
};

// Most bytes of one token before compression: a set of `count` of a vocabulary.
constexpr size_t most_keep_bytes(size_t count, size_t vocabulary) {
  return count + vocabulary / 128 + vocabulary / 16384 + 8;
}

// A compact form: counts, then gaps of each set, seven bits a byte, compressed. Empty where nothing is recorded.
std::string encode(const KeepSets& sets);
// kCorrupt where it is not the form of a set for each of these tokens (KeepSets::fits), or beyond the limits above.
Result<KeepSets> decode_keep_sets(std::string_view bytes, uint32_t vocabulary, std::span<const int32_t> tokens);

}  // namespace tandem
