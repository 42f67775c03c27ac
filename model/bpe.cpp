#include "model/bpe.h"

#include <xxhash.h>

#include <algorithm>
#include <bit>
#include <queue>

#include "base/utf8.h"

namespace tandem::model {
namespace {

constexpr uint64_t kNoPair = ~uint64_t{0};
constexpr size_t kShort = 48;  // symbols; looking at all pairs beats a heap below that

uint64_t key_of(TokenId left, TokenId right) {
  return (uint64_t{static_cast<uint32_t>(left)} << 32) | static_cast<uint32_t>(right);
}

uint64_t mix(uint64_t key) {
  key *= 0x9e3779b97f4a7c15ull;
  return key ^ (key >> 32);
}

uint64_t hash_text(std::string_view text) { return XXH3_64bits(text.data(), text.size()); }

// Room for `count` entries at most half full.
uint64_t table_size(size_t count) { return std::bit_ceil(std::max<uint64_t>(16, count * 2)); }

}  // namespace

Bpe::Bpe(std::vector<std::string> tokens, std::span<const Merge> merges, std::vector<TokenId> byte_tokens,
         Options options)
    : tokens_(std::move(tokens)), byte_tokens_(std::move(byte_tokens)), options_(options) {
  pairs_.assign(table_size(merges.size()), {kNoPair, 0, 0});
  pair_mask_ = pairs_.size() - 1;
  for (size_t rank = 0; rank < merges.size(); ++rank) {
    const uint64_t key = key_of(merges[rank].left, merges[rank].right);
    uint64_t at = mix(key) & pair_mask_;
    while (pairs_[at].key != kNoPair && pairs_[at].key != key) at = (at + 1) & pair_mask_;
    pairs_[at] = {key, static_cast<uint32_t>(rank), merges[rank].merged};  // a pair that stands twice has its last rank
  }
  const auto put = [&](std::vector<Word>& table, TokenId id) {
    const uint64_t hash = hash_text(tokens_[id]);
    const uint64_t mask = table.size() - 1;
    uint64_t at = hash & mask;
    while (table[at].id >= 0) at = (at + 1) & mask;
    table[at] = {static_cast<uint32_t>(hash >> 32), id};
  };
  if (!options_.byte_level) {
    characters_.assign(table_size(tokens_.size()), {0, -1});
    for (size_t id = 0; id < tokens_.size(); ++id) {
      if (!tokens_[id].empty()) put(characters_, static_cast<TokenId>(id));
    }
  }
  std::vector<Word> words(table_size(tokens_.size()), Word{0, -1});
  std::vector<TokenId> ids;
  for (size_t id = 0; id < tokens_.size(); ++id) {
    if (tokens_[id].empty()) continue;
    if (!options_.ignore_merges) {
      ids.clear();
      encode(tokens_[id], ids);  // words_ is still empty
      if (ids.size() != 1 || ids[0] != static_cast<TokenId>(id)) continue;
    }
    put(words, static_cast<TokenId>(id));
  }
  words_ = std::move(words);
}

const Bpe::Pair* Bpe::find_pair(TokenId left, TokenId right) const {
  const uint64_t key = key_of(left, right);
  for (uint64_t at = mix(key) & pair_mask_;; at = (at + 1) & pair_mask_) {
    if (pairs_[at].key == key) return &pairs_[at];
    if (pairs_[at].key == kNoPair) return nullptr;
  }
}

TokenId Bpe::find_text(std::string_view text, const std::vector<Word>& table) const {
  if (table.empty()) return -1;
  const uint64_t hash = hash_text(text);
  const uint64_t mask = table.size() - 1;
  for (uint64_t at = hash & mask; table[at].id >= 0; at = (at + 1) & mask) {
    if (table[at].hash == static_cast<uint32_t>(hash >> 32) && tokens_[table[at].id] == text) return table[at].id;
  }
  return -1;
}

void Bpe::start_symbols(std::string_view piece, std::vector<TokenId>& ids) const {
  const auto add_unknown = [&](bool& fused) {
    if (options_.unknown && !(fused && options_.fuse_unknown)) ids.push_back(*options_.unknown);
    fused = true;
  };
  bool fused = false;
  if (options_.byte_level) {
    for (const char byte : piece) {
      const TokenId id = byte_tokens_[static_cast<uint8_t>(byte)];
      if (id >= 0) {
        ids.push_back(id);
        fused = false;
      } else {
        add_unknown(fused);
      }
    }
    return;
  }
  for (size_t at = 0; at < piece.size();) {
    const auto character = piece.substr(at, next_character(piece.substr(at)).length);
    at += character.size();
    if (const TokenId id = find_text(character, characters_); id >= 0) {
      ids.push_back(id);
      fused = false;
      continue;
    }
    const bool falls_back = options_.byte_fallback && std::all_of(character.begin(), character.end(), [&](char byte) {
                              return byte_tokens_[static_cast<uint8_t>(byte)] >= 0;
                            });
    if (!falls_back) {
      add_unknown(fused);
      continue;
    }
    for (const char byte : character) ids.push_back(byte_tokens_[static_cast<uint8_t>(byte)]);
    fused = false;
  }
}

void Bpe::encode(std::string_view piece, std::vector<TokenId>& out) const {
  if (const TokenId whole = find_text(piece, words_); whole >= 0) {
    out.push_back(whole);
    return;
  }
  const size_t begin = out.size();
  start_symbols(piece, out);
  const size_t count = out.size() - begin;
  if (count < 2) return;
  const size_t merged =
      count <= kShort ? merge_short({out.data() + begin, count}) : merge_long({out.data() + begin, count});
  out.resize(begin + merged);
}

size_t Bpe::merge_short(std::span<TokenId> ids) const {
  constexpr uint32_t kNone = ~uint32_t{0};
  uint32_t ranks[kShort];
  TokenId merged[kShort];
  size_t count = ids.size();
  const auto look_up = [&](size_t i) {
    const Pair* pair = find_pair(ids[i], ids[i + 1]);
    ranks[i] = pair ? pair->rank : kNone;
    merged[i] = pair ? pair->merged : -1;
  };
  for (size_t i = 0; i + 1 < count; ++i) look_up(i);
  for (;;) {
    size_t best = 0;
    for (size_t i = 1; i + 1 < count; ++i) {
      if (ranks[i] < ranks[best]) best = i;
    }
    if (count < 2 || ranks[best] == kNone) return count;
    ids[best] = merged[best];
    std::copy(ids.begin() + best + 2, ids.begin() + count, ids.begin() + best + 1);
    --count;
    if (best + 1 < count) {
      std::copy(ranks + best + 2, ranks + count, ranks + best + 1);
      std::copy(merged + best + 2, merged + count, merged + best + 1);
      look_up(best);
    }
    if (best > 0) look_up(best - 1);
  }
}

size_t Bpe::merge_long(std::span<TokenId> ids) const {
  struct Symbol {
    TokenId id;
    int32_t previous;
    int32_t next;
    bool gone;
  };
  struct Candidate {
    uint32_t rank;
    int32_t at;
    TokenId merged;
    bool operator>(const Candidate& other) const { return std::pair(rank, at) > std::pair(other.rank, other.at); }
  };
  const auto count = static_cast<int32_t>(ids.size());
  std::vector<Symbol> symbols(ids.size());
  for (int32_t i = 0; i < count; ++i) symbols[i] = {ids[i], i - 1, i + 1 < count ? i + 1 : -1, false};
  std::priority_queue<Candidate, std::vector<Candidate>, std::greater<>> queue;
  const auto offer = [&](int32_t at) {
    if (at < 0 || symbols[at].next < 0) return;
    const Pair* pair = find_pair(symbols[at].id, symbols[symbols[at].next].id);
    if (pair) queue.push({pair->rank, at, pair->merged});
  };
  for (int32_t i = 0; i < count; ++i) offer(i);
  while (!queue.empty()) {
    const Candidate best = queue.top();
    queue.pop();
    Symbol& left = symbols[best.at];
    if (left.gone || left.next < 0) continue;
    Symbol& right = symbols[left.next];
    const Pair* pair = find_pair(left.id, right.id);
    if (pair == nullptr || pair->merged != best.merged) continue;  // one of the two has been merged since
    left.id = best.merged;
    right.gone = true;
    left.next = right.next;
    if (right.next >= 0) symbols[right.next].previous = best.at;
    offer(left.previous);
    offer(best.at);
  }
  size_t kept = 0;
  for (int32_t i = 0; i >= 0; i = symbols[i].next) ids[kept++] = symbols[i].id;
  return kept;
}

void Bpe::measure(std::string_view piece, std::span<const TokenId> ids, std::vector<size_t>& lengths) const {
  const auto skip_character = [&] {
    if (!piece.empty()) piece.remove_prefix(next_character(piece).length);
  };
  const auto falls_back = [&](TokenId id) {
    return options_.byte_fallback && std::find(byte_tokens_.begin(), byte_tokens_.end(), id) != byte_tokens_.end();
  };
  for (size_t i = 0; i < ids.size(); ++i) {
    const size_t before = piece.size();
    if (piece.starts_with(tokens_[ids[i]])) {
      piece.remove_prefix(tokens_[ids[i]].size());
    } else if (falls_back(ids[i])) {
      piece.remove_prefix(std::min<size_t>(1, piece.size()));
    } else if (ids[i] == options_.unknown) {
      const auto next_begins = [&] { return i + 1 < ids.size() && piece.starts_with(tokens_[ids[i + 1]]); };
      do skip_character();
      while (options_.fuse_unknown && !piece.empty() && !next_begins());
    } else {
      while (!piece.empty() && !piece.starts_with(tokens_[ids[i]])) skip_character();
      piece.remove_prefix(std::min(tokens_[ids[i]].size(), piece.size()));
    }
    lengths.push_back(before - piece.size());
  }
}

}  // namespace tandem::model
