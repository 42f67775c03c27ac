#include "model/constraint/dfa.h"

#include <fmt/format.h>

#include <algorithm>
#include <atomic>
#include <map>
#include <unordered_map>

namespace tandem::model::constraint {

namespace {

std::atomic<uint64_t> serials{1};

// By state, whether an accepting one can be reached.
std::vector<bool> live_states(const std::vector<int32_t>& next, const std::vector<bool>& accepting, size_t classes) {
  const size_t states = accepting.size();
  std::vector<std::vector<int32_t>> before(states);
  for (size_t s = 0; s < states; ++s) {
    for (size_t c = 0; c < classes; ++c) {
      const int32_t to = next[s * classes + c];
      if (to != Dfa::kDead && (before[to].empty() || before[to].back() != static_cast<int32_t>(s)))
        before[to].push_back(static_cast<int32_t>(s));
    }
  }
  std::vector<bool> live(accepting);
  std::vector<int32_t> open;
  for (size_t s = 0; s < states; ++s)
    if (live[s]) open.push_back(static_cast<int32_t>(s));
  while (!open.empty()) {
    const int32_t state = open.back();
    open.pop_back();
    for (const int32_t from : before[state]) {
      if (live[from]) continue;
      live[from] = true;
      open.push_back(from);
    }
  }
  return live;
}

}  // namespace

Dfa::Dfa(std::vector<char32_t> starts, std::vector<int32_t> next, std::vector<bool> accepting)
    : starts_(std::move(starts)), next_(std::move(next)), accepting_(std::move(accepting)), serial_(serials++) {
  const auto live = live_states(next_, accepting_, classes());
  for (int32_t& to : next_)
    if (to != kDead && !live[to]) to = kDead;
  empty_ = !live[0];
  for (char32_t c = 0; c < ascii_.size(); ++c)
    ascii_[c] = static_cast<uint16_t>(std::upper_bound(starts_.begin(), starts_.end(), c) - starts_.begin() - 1);
}

size_t Dfa::class_of(char32_t character) const {
  if (character < ascii_.size()) return ascii_[character];
  return std::upper_bound(starts_.begin(), starts_.end(), character) - starts_.begin() - 1;
}

bool Dfa::leads_on(int32_t state, char32_t first, char32_t last) const {
  const int32_t* row = &next_[static_cast<size_t>(state) * classes()];
  for (size_t c = class_of(first); c < classes() && starts_[c] <= last; ++c)
    if (row[c] != kDead) return true;
  return false;
}

bool Dfa::stays(int32_t state, char32_t first, char32_t last) const {
  const int32_t* row = &next_[static_cast<size_t>(state) * classes()];
  for (size_t c = class_of(first); c < classes() && starts_[c] <= last; ++c)
    if (row[c] != state) return false;
  return true;
}

std::vector<uint32_t> Dfa::columns() const {
  std::vector<uint64_t> hashes(classes(), 0);
  std::vector<uint32_t> first(classes(), kNoColumn);
  for (size_t at = 0; at < next_.size();) {
    for (size_t c = 0; c < classes(); ++c, ++at) {
      hashes[c] = (hashes[c] ^ static_cast<uint32_t>(next_[at])) * 0x9E3779B97F4A7C15u;
      if (next_[at] != kDead) first[c] = static_cast<uint32_t>(c);
    }
  }
  std::unordered_map<uint64_t, uint32_t> by_hash;
  for (size_t c = 0; c < classes(); ++c)
    if (first[c] != kNoColumn) first[c] = by_hash.try_emplace(hashes[c], static_cast<uint32_t>(c)).first->second;
  std::vector<bool> wrong(classes(), false);  // two columns of one hash
  for (size_t at = 0; at < next_.size(); at += classes())
    for (size_t c = 0; c < classes(); ++c)
      if (first[c] != kNoColumn && next_[at + c] != next_[at + first[c]]) wrong[c] = true;
  for (size_t c = 0; c < classes(); ++c)
    if (wrong[c]) first[c] = static_cast<uint32_t>(c);
  return first;
}

bool Dfa::matches(std::u32string_view text) const {
  if (empty_) return false;
  int32_t state = start();
  for (const char32_t c : text) {
    state = next(state, c);
    if (state == kDead) return false;
  }
  return accepts(state);
}

Result<Dfa> Dfa::of_length(uint32_t least, std::optional<uint32_t> most) {
  const size_t states = size_t{most.value_or(least)} + 1;
  if (states * 3 > kMaxEntries || (most && *most < least))
    return fail(Status::exhausted(fmt::format("an automaton that counts to {} is too large", states - 1)));
  std::vector<int32_t> next(states * 3, kDead);
  std::vector<bool> accepting(states, false);
  for (size_t s = 0; s < states; ++s) {
    const int32_t to = s + 1 < states ? static_cast<int32_t>(s + 1) : most ? kDead : static_cast<int32_t>(s);
    next[s * 3] = next[s * 3 + 2] = to;
    accepting[s] = s >= least;
  }
  return Dfa({0, 0xD800, 0xE000}, std::move(next), std::move(accepting));
}

Dfa Dfa::complement(const Dfa& a) {
  static constexpr std::array<char32_t, 3> kSurrogates = {0, 0xD800, 0xE000};
  std::vector<char32_t> starts;
  std::set_union(a.starts_.begin(), a.starts_.end(), kSurrogates.begin(), kSurrogates.end(),
                 std::back_inserter(starts));
  const auto all = static_cast<int32_t>(a.states());  // behind what cannot become one that `a` accepts
  std::vector<int32_t> next;
  for (int32_t state = start(); state <= all; ++state) {
    for (const char32_t c : starts) {
      const int32_t to = state == all ? all : a.next(state, c);
      next.push_back(c >= 0xD800 && c < 0xE000 ? kDead : to == kDead ? all : to);
    }
  }
  std::vector<bool> accepting = a.accepting_;
  accepting.flip();
  accepting.push_back(true);
  return Dfa(std::move(starts), std::move(next), std::move(accepting));
}

Result<Dfa> Dfa::intersection(const Dfa& a, const Dfa& b) {
  std::vector<char32_t> starts;
  std::set_union(a.starts_.begin(), a.starts_.end(), b.starts_.begin(), b.starts_.end(), std::back_inserter(starts));
  std::map<std::pair<int32_t, int32_t>, int32_t> numbers;
  std::vector<std::pair<int32_t, int32_t>> open;
  const auto number_of = [&](int32_t s, int32_t t) {
    const auto [found, fresh] = numbers.try_emplace({s, t}, static_cast<int32_t>(open.size()));
    if (fresh) open.emplace_back(s, t);
    return found->second;
  };
  number_of(start(), start());
  std::vector<int32_t> next;
  std::vector<bool> accepting;
  for (size_t at = 0; at < open.size(); ++at) {
    const auto [s, t] = open[at];
    if (open.size() * starts.size() > kMaxEntries)
      return fail(Status::exhausted(fmt::format("together they take an automaton of more than {} states", at)));
    accepting.push_back(a.accepts(s) && b.accepts(t) && !a.empty() && !b.empty());
    for (const char32_t c : starts) {
      const int32_t x = a.next(s, c), y = b.next(t, c);
      next.push_back(x == kDead || y == kDead ? kDead : number_of(x, y));
    }
  }
  return Dfa(std::move(starts), std::move(next), std::move(accepting));
}

}  // namespace tandem::model::constraint
