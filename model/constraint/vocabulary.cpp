#include "model/constraint/vocabulary.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <functional>
#include <tuple>

#include "model/constraint/grammar.h"
#include "model/constraint/string_state.h"

namespace tandem::model::constraint {

namespace {

// One byte further inside.
ByteStep step(InnerState& state, uint8_t byte) {
  switch (state.kind) {
    case InnerState::kString: {
      StringState string{state.a, state.b, state.c, state.guard, state.less};
      const auto result = step_string(state.dfa, string, byte);
      state.a = string.a;
      state.b = string.b;
      state.c = string.decoder;
      state.less = string.less;
      return result;
    }
    case InnerState::kKey: {
      StringState key{.decoder = state.c, .guard = state.guard, .less = state.less};
      const auto result = step_canonical(key, byte);
      state.c = key.decoder;
      state.less = key.less;
      return result;
    }
    case InnerState::kNumber: {
      const int32_t to = state.dfa->next(static_cast<int32_t>(state.a), byte);
      state.a = static_cast<uint32_t>(to);
      return to == Dfa::kDead ? ByteStep::kRefused : ByteStep::kInside;
    }
    case InnerState::kSpace:
      if (!is_json_space(byte) || state.a == 0) return ByteStep::kRefused;
      --state.a;
      return ByteStep::kInside;
    case InnerState::kRaw: {
      StringState text{.a = state.a, .decoder = state.c};
      const auto result = step_raw(*state.dfa, text, byte);
      state.a = text.a;
      state.c = text.decoder;
      return result;
    }
    case InnerState::kText:
      state.a = (*state.text)[state.a][byte];
      if (state.a > state.text->size()) return ByteStep::kRefused;
      return state.a == state.text->size() ? ByteStep::kClosed : ByteStep::kInside;
  }
  return ByteStep::kRefused;
}

// Numbers, texts without quotes and white space end before the byte that is not part of them.
bool may_end(const InnerState& state) {
  if (state.kind == InnerState::kSpace) return true;
  const bool counts = state.kind == InnerState::kNumber || (state.kind == InnerState::kRaw && state.c == 0);
  return counts && state.dfa->accepts(static_cast<int32_t>(state.a));
}

// What ends a text without quotes: a tag, or the line end before it.
bool ends_raw(uint8_t byte) { return byte == '<' || byte == '\n'; }

// What cannot come behind a number, whatever is around it.
bool follows_number(uint8_t byte) {
  const uint8_t letter = byte | 32;
  return byte < 0x80 && !(letter >= 'a' && letter <= 'z') && !(byte >= '0' && byte <= '9');
}

bool same(const InnerState& x, const InnerState& y) {
  return x.a == y.a && x.b == y.b && x.c == y.c && x.less == y.less;
}

// The classes of bytes that change nothing, so that a token of them alone stays inside.
uint64_t idle_bytes(const InnerState& state) {
  if (state.kind == InnerState::kNumber || state.kind == InnerState::kSpace || state.c != 0) return 0;
  const auto idles = [&](uint8_t byte) {
    InnerState next = state;
    return step(next, byte) == ByteStep::kInside && same(next, state);
  };
  uint64_t idle = ~uint64_t{0};
  for (uint8_t byte = 0; byte < 0x80; ++byte)
    if (!idles(byte) || (state.kind == InnerState::kRaw && ends_raw(byte))) idle &= ~TokenTrie::class_of(byte);
  if (state.kind == InnerState::kText) {
    for (int byte = 0x80; byte <= 0xFF; ++byte)
      if (!idles(static_cast<uint8_t>(byte))) return idle & ~(TokenTrie::kWhole | TokenTrie::kBroken);
    return idle;
  }
  const auto at = static_cast<int32_t>(state.a);
  const bool by_length = state.kind == InnerState::kString && state.dfa == nullptr;
  const bool any = by_length ? state.a == kUnlimited && state.b == 0
                   : state.dfa != nullptr
                       ? state.dfa->stays(at, 0x80, 0xD7FF) && state.dfa->stays(at, 0xE000, kLastCharacter)
                       : true;
  return idle & ~TokenTrie::kBroken & (any && !state.less ? ~uint64_t{0} : ~TokenTrie::kWhole);
}

class Walk {
 public:
  // `keep` says which bytes may follow an end; null: all.
  Walk(const TokenTrie& trie, bool (*keep)(uint8_t), std::vector<TokenId>& accepted,
       std::vector<TokenTrie::Branch>& ends)
      : trie_(trie), keep_(keep), accepted_(accepted), ends_(ends) {}

  // Whether what is below a child of where the walk begins is seen to elsewhere; null: nothing is.
  std::function<bool(uint32_t child, const InnerState& state)> shared;

  void from(uint32_t number, const InnerState& state, bool first = true) {
    const auto& node = trie_.node(number);
    if (node.children == 0) return;
    if ((node.below & ~idle_in(state)) == 0) {
      const auto tokens = trie_.tokens_below(number);
      accepted_.insert(accepted_.end(), tokens.begin(), tokens.end());
      return;
    }
    for (uint32_t c = node.first_child; c < node.first_child + node.children; ++c) {
      const uint8_t byte = trie_.node(c).byte;
      // Most of what is looked at are letters between two characters; this is what step_string says of them.
      if (state.kind == InnerState::kString && state.dfa != nullptr && state.c == 0 && state.guard == 0 &&
          byte >= 0x20 && byte < 0x80 && byte != '"' && byte != '\\') {
        const int32_t to = state.dfa->next(static_cast<int32_t>(state.a), byte);
        if (to == Dfa::kDead) continue;
        InnerState next = state;
        next.a = static_cast<uint32_t>(to);
        const auto tokens = trie_.tokens(c);
        accepted_.insert(accepted_.end(), tokens.begin(), tokens.end());
        below(c, next, first);
        continue;
      }
      InnerState next = state;
      const auto result = step(next, byte);
      if (result == ByteStep::kRefused) continue;
      if (result == ByteStep::kClosed) {
        ends_.push_back({&trie_, c});
        continue;
      }
      const auto tokens = trie_.tokens(c);
      accepted_.insert(accepted_.end(), tokens.begin(), tokens.end());
      // Texts and numbers may end nearly everywhere: only where a token goes on with what follows one does it matter.
      if (may_end(next) && goes_on(c)) ends_.push_back({&trie_, c});
      below(c, next, first);
    }
  }

 private:
  void below(uint32_t child, const InnerState& state, bool first) {
    if (!first || shared == nullptr || !shared(child, state)) from(child, state, false);
  }
  bool goes_on(uint32_t number) const {
    const auto& node = trie_.node(number);
    for (uint32_t c = node.first_child; c < node.first_child + node.children; ++c)
      if (keep_ == nullptr || keep_(trie_.node(c).byte)) return true;
    return false;
  }

  uint64_t idle_in(const InnerState& state) {
    if (state.c != 0) return 0;
    const auto [at, fresh] = idle_.try_emplace({state.a, state.b, state.less});
    if (fresh) at->second = idle_bytes(state);
    return at->second;
  }

  const TokenTrie& trie_;
  bool (*keep_)(uint8_t);
  std::map<std::tuple<uint32_t, uint32_t, bool>, uint64_t> idle_;  // of the states that are met
  std::vector<TokenId>& accepted_;
  std::vector<TokenTrie::Branch>& ends_;
};

}  // namespace

Result<std::shared_ptr<const Vocabulary>> Vocabulary::create(const Tokenizer& tokenizer,
                                                             std::span<const TokenId> ends) {
  std::vector<std::string> bytes(tokenizer.size());
  std::map<std::string, TokenId, std::less<>> special;
  for (TokenId token = 0; token < tokenizer.size(); ++token) {
    if (std::find(ends.begin(), ends.end(), token) != ends.end()) continue;
    if (tokenizer.is_special(token))
      special.try_emplace(std::string(tokenizer.bytes_of(token)), token);
    else
      bytes[token] = tokenizer.bytes_of(token);
  }
  return from_bytes(std::move(bytes), std::move(special));
}

Result<std::shared_ptr<const Vocabulary>> Vocabulary::from_bytes(std::vector<std::string> bytes,
                                                                 std::map<std::string, TokenId, std::less<>> special) {
  std::array<bool, 256> single{};
  for (const auto& token : bytes)
    if (token.size() == 1) single[static_cast<uint8_t>(token[0])] = true;
  // A byte that begins a character may be missing, as those of the planes without characters are in some tokenizers:
  // then that character is written as an escape, or never begun.
  for (int byte = 0x20; byte < 0xC0; ++byte) {
    if (single[byte] || byte == 0x7F) continue;
    return fail(Status::invalid(fmt::format(
        "a constraint needs a tokenizer with a token for each byte of ASCII and of what follows the first byte of a "
        "character; it has none for byte 0x{:02X}",
        byte)));
  }
  return std::shared_ptr<const Vocabulary>(new Vocabulary(std::move(bytes), std::move(special)));
}

Vocabulary::Vocabulary(std::vector<std::string> bytes, std::map<std::string, TokenId, std::less<>> special)
    : bytes_(std::move(bytes)), special_(std::move(special)) {
  std::vector<TokenTrie::Entry> entries;
  for (size_t i = 0; i < bytes_.size(); ++i) {
    if (bytes_[i].empty()) continue;
    entries.push_back({bytes_[i], static_cast<TokenId>(i)});
    longest_ = std::max(longest_, static_cast<uint32_t>(bytes_[i].size()));
  }
  trie_ = std::make_unique<const TokenTrie>(std::move(entries));
  strings_ = TokenShapes::of_strings(*trie_, mask_words());
  spaces_ = TokenShapes::of_spaces(*trie_, mask_words());
  // What texts of any grammar come to, so that the first one need not wait for it.
  for (const InnerState& state :
       {InnerState{.kind = InnerState::kString, .a = kUnlimited}, InnerState{.kind = InnerState::kKey},
        InnerState{.kind = InnerState::kSpace, .a = kMaxWhiteSpace}})
    (void)inside(*trie_, TokenTrie::kRoot, state);
}

std::shared_ptr<const InnerTokens> Vocabulary::inside(const TokenTrie& trie, uint32_t node, InnerState state) const {
  if (state.kind == InnerState::kString && state.dfa == nullptr) {  // further than a token reaches makes no difference
    if (state.a > longest_) state.a = kUnlimited;
    state.b = std::min(state.b, longest_ + 1);
  }
  const Key key{trie.serial(), state.dfa != nullptr ? state.dfa->serial() : state.text_tag,
                node,          state.a,
                state.b,       state.c,
                state.kind,    state.guard,
                state.less};
  {
    const std::lock_guard lock(mutex_);
    if (const auto found = kept_.find(key); found != kept_.end()) return found->second;
  }
  auto made = std::make_shared<const InnerTokens>(look(trie, node, state));
  const size_t size = sizeof(InnerTokens) + (made->accepted.size() * sizeof(TokenId)) + (made->bits.size() * 8) +
                      made->behind.bytes() + 128;
  const std::lock_guard lock(mutex_);
  make_room(size);
  const auto [at, fresh] = kept_.try_emplace(key, std::move(made));
  if (fresh) kept_bytes_ += size;
  return at->second;
}

void Vocabulary::make_room(size_t bytes) const {
  if (kept_bytes_ + bytes > kMaxKeptBytes) {
    kept_.clear();
    shapes_.clear();
    kept_bytes_ = 0;
  }
}

std::shared_ptr<const TokenShapes> Vocabulary::shapes_of(const InnerState& state) const {
  if (state.kind == InnerState::kSpace) return spaces_;
  if (state.kind != InnerState::kString || state.c != 0 || !TokenShapes::tells(state.guard)) return nullptr;
  const uint64_t key = state.dfa != nullptr ? state.dfa->serial() : 0;
  {
    const std::lock_guard lock(mutex_);
    if (const auto found = shapes_.find(key); found != shapes_.end()) return found->second;
  }
  std::shared_ptr<const TokenShapes> made = TokenShapes::of_rule(*strings_, state.dfa);
  const size_t size = 128 + (made != nullptr ? made->bytes() : 0);
  const std::lock_guard lock(mutex_);
  make_room(size);
  const auto [at, fresh] = shapes_.try_emplace(key, std::move(made));
  if (fresh) kept_bytes_ += size;
  return at->second;
}

InnerTokens Vocabulary::look(const TokenTrie& trie, uint32_t node, const InnerState& state) const {
  const bool whole = &trie == trie_.get() && node == TokenTrie::kRoot;
  const auto shapes = whole ? shapes_of(state) : nullptr;
  if (shapes == nullptr) return walk(trie, node, state);
  auto found = shapes->find(state.dfa, {.a = state.a, .b = state.b, .guard = state.guard, .less = state.less});
  return {.accepted = std::move(found.tokens), .bits = std::move(found.bits), .behind = std::move(found.behind)};
}

InnerTokens Vocabulary::walk(const TokenTrie& trie, uint32_t node, const InnerState& state) const {
  InnerTokens out;
  out.ends_before = state.kind != InnerState::kSpace && may_end(state);
  bool (*keep)(uint8_t) = nullptr;
  if (state.kind == InnerState::kSpace) keep = follows_space;
  if (state.kind == InnerState::kNumber) keep = follows_number;
  if (state.kind == InnerState::kRaw) keep = ends_raw;
  std::vector<TokenTrie::Branch> ends;
  std::vector<std::shared_ptr<const InnerTokens>> parts;
  Walk walk(trie, keep, out.accepted, ends);
  // From most first bytes on, states of one rule do not differ: what they share is looked at once.
  const bool whole = &trie == trie_.get() && node == TokenTrie::kRoot && state.kind != InnerState::kNumber;
  if (whole)
    walk.shared = [&](uint32_t child, const InnerState& next) {
      const auto& below = trie.node(child);
      if (below.below_end - below.tokens_begin < kLargeBranch) return false;
      parts.push_back(inside(trie, child, next));
      return true;
    };
  walk.from(node, state);
  for (const auto& part : parts) {
    out.accepted.insert(out.accepted.end(), part->accepted.begin(), part->accepted.end());
    ends.insert(ends.end(), part->behind.begin(), part->behind.end());
    if (!part->bits.empty()) out.bits.resize(mask_words(), 0);
    for (size_t i = 0; i < part->bits.size(); ++i) out.bits[i] |= part->bits[i];
  }
  if (!ends.empty()) out.behind = TokenBranches(ends, *trie_, keep);
  if (!out.bits.empty() || out.accepted.size() > mask_words()) {
    out.bits.resize(mask_words(), 0);
    for (const TokenId token : out.accepted) out.bits[token / 64] |= uint64_t{1} << (token % 64);
    out.accepted.clear();
  }
  out.accepted.shrink_to_fit();
  return out;
}

}  // namespace tandem::model::constraint
