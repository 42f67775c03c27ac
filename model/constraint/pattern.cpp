#include "model/constraint/pattern.h"

#include <fmt/format.h>

#include <algorithm>
#include <map>
#include <memory>

#include "model/constraint/pattern_parser.h"

namespace tandem::model::constraint {

namespace {

constexpr size_t kMaxNfaStates = 40'000;
constexpr size_t kWork = 20'000'000;

// Thompson's construction. An edge without characters is taken for free, always or only at an end of the text.
struct Nfa {
  enum class Free : uint8_t { kAlways, kAtBegin, kAtEnd };
  struct Edge {
    const std::vector<CharacterRange>* characters = nullptr;  // null: free
    Free when = Free::kAlways;
    int32_t to = 0;
  };
  std::vector<std::vector<Edge>> edges;

  int32_t add() {
    edges.emplace_back();
    return static_cast<int32_t>(edges.size() - 1);
  }
};

class PatternBuilder {
 public:
  explicit PatternBuilder(Nfa& nfa) : nfa_(nfa) {}

  // Adds what matches `node` from `from`, and gives the state behind it; nothing where that is too much.
  std::optional<int32_t> build(const PatternNode& node, int32_t from) {
    if (nfa_.edges.size() > kMaxNfaStates || ++visits_ > 4 * kMaxNfaStates) return std::nullopt;
    switch (node.kind) {
      case PatternNode::kCharacters: {
        const int32_t to = nfa_.add();
        nfa_.edges[from].push_back({.characters = &node.characters, .to = to});
        return to;
      }
      case PatternNode::kBegin:
        return free_edge(from, Nfa::Free::kAtBegin);
      case PatternNode::kEnd:
        return free_edge(from, Nfa::Free::kAtEnd);
      case PatternNode::kSequence: {
        for (const auto& child : node.children) {
          const auto to = build(child, from);
          if (!to) return std::nullopt;
          from = *to;
        }
        return from;
      }
      case PatternNode::kChoice: {
        const int32_t to = nfa_.add();
        for (const auto& child : node.children) {
          const auto end = build(child, free_edge(from, Nfa::Free::kAlways));
          if (!end) return std::nullopt;
          nfa_.edges[*end].push_back({.to = to});
        }
        return to;
      }
      case PatternNode::kRepeat:
        return repeat(node, from);
    }
    return std::nullopt;
  }

 private:
  int32_t free_edge(int32_t from, Nfa::Free when) {
    const int32_t to = nfa_.add();
    nfa_.edges[from].push_back({.when = when, .to = to});
    return to;
  }

  std::optional<int32_t> repeat(const PatternNode& node, int32_t from) {
    const PatternNode& child = node.children.front();
    for (uint32_t i = 0; i < node.least; ++i) {
      const auto to = build(child, from);
      if (!to) return std::nullopt;
      from = *to;
    }
    const int32_t end = nfa_.add();
    if (!node.most) {
      const int32_t loop = free_edge(from, Nfa::Free::kAlways);
      const auto to = build(child, loop);
      if (!to) return std::nullopt;
      nfa_.edges[*to].push_back({.to = loop});
      nfa_.edges[loop].push_back({.to = end});
      return end;
    }
    for (uint32_t i = node.least; i < *node.most; ++i) {
      nfa_.edges[from].push_back({.to = end});
      const auto to = build(child, from);
      if (!to) return std::nullopt;
      from = *to;
    }
    nfa_.edges[from].push_back({.to = end});
    return end;
  }

  Nfa& nfa_;
  size_t visits_ = 0;  // repetitions of nothing add no states
};

// Sets of states that are reached together become the states of the automaton.
class Determiniser {
 public:
  Determiniser(const Nfa& nfa, int32_t accept, size_t& work)
      : nfa_(nfa), accept_(accept), work_left_(work), seen_(nfa.edges.size(), 0) {}

  Result<Dfa> run() {
    find_classes();
    std::vector<int32_t> next;
    std::vector<bool> accepting;
    number_of(closure({0}, true, false), true);
    for (size_t at = 0; at < sets_.size(); ++at) {
      const auto [states, at_begin] = sets_[at];
      auto ended = closure(states, at_begin, true);
      accepting.push_back(std::binary_search(ended.begin(), ended.end(), accept_));
      for (const char32_t c : starts_) {
        std::vector<int32_t> reached;
        for (const int32_t state : states) {
          for (const auto& edge : nfa_.edges[state]) {
            work();
            if (edge.characters != nullptr && contains(*edge.characters, c)) reached.push_back(edge.to);
          }
        }
        auto closed = closure(std::move(reached), false, false);
        next.push_back(closed.empty() ? Dfa::kDead : number_of(std::move(closed), false));
        if (work_left_ == 0 || sets_.size() * starts_.size() > Dfa::kMaxEntries)
          return fail(Status::exhausted("the pattern takes too large an automaton"));
      }
    }
    return Dfa(std::move(starts_), std::move(next), std::move(accepting));
  }

 private:
  void work() { work_left_ -= work_left_ > 0; }

  static bool contains(const std::vector<CharacterRange>& ranges, char32_t c) {
    const auto after = std::upper_bound(ranges.begin(), ranges.end(), c,
                                        [](char32_t value, const CharacterRange& r) { return value < r.first; });
    return after != ranges.begin() && c <= std::prev(after)->last;
  }

  void find_classes() {
    starts_ = {0, 0xD800, 0xE000};
    for (const auto& edges : nfa_.edges) {
      for (const auto& edge : edges) {
        if (edge.characters == nullptr) continue;
        for (const auto& range : *edge.characters) {
          starts_.push_back(range.first);
          if (range.last < kLastCharacter) starts_.push_back(range.last + 1);
        }
      }
    }
    std::sort(starts_.begin(), starts_.end());
    starts_.erase(std::unique(starts_.begin(), starts_.end()), starts_.end());
  }

  std::vector<int32_t> closure(std::vector<int32_t> open, bool at_begin, bool at_end) {
    ++round_;
    std::vector<int32_t> states;
    while (!open.empty()) {
      const int32_t state = open.back();
      open.pop_back();
      if (seen_[state] == round_) continue;
      seen_[state] = round_;
      states.push_back(state);
      for (const auto& edge : nfa_.edges[state]) {
        work();
        if (edge.characters != nullptr || (edge.when == Nfa::Free::kAtBegin && !at_begin) ||
            (edge.when == Nfa::Free::kAtEnd && !at_end))
          continue;
        open.push_back(edge.to);
      }
    }
    std::sort(states.begin(), states.end());
    return states;
  }

  int32_t number_of(std::vector<int32_t> states, bool at_begin) {
    const auto [found, fresh] = numbers_.try_emplace({states, at_begin}, static_cast<int32_t>(sets_.size()));
    if (fresh) sets_.emplace_back(std::move(states), at_begin);
    return found->second;
  }

  const Nfa& nfa_;
  int32_t accept_;
  size_t& work_left_;
  std::vector<uint32_t> seen_;
  uint32_t round_ = 0;
  std::vector<char32_t> starts_;
  std::map<std::pair<std::vector<int32_t>, bool>, int32_t> numbers_;
  std::vector<std::pair<std::vector<int32_t>, bool>> sets_;  // the second: no character has been read
};

}  // namespace

Result<Dfa> compile_pattern(std::string_view pattern) {
  size_t work = kWork;
  return compile_pattern(pattern, work);
}

Result<Dfa> compile_pattern(std::string_view pattern, size_t& work) {
  if (pattern.size() > kMaxPatternBytes) {
    return fail(Status::exhausted(
        fmt::format("the pattern has {} bytes, at most {} are read", pattern.size(), kMaxPatternBytes)));
  }
  const PatternNode root = TRY(parse_pattern(pattern));
  static const std::vector<CharacterRange> kAny = {{0, 0xD7FF}, {0xE000, kLastCharacter}};
  Nfa nfa;
  const int32_t begin = nfa.add();
  nfa.edges[begin].push_back({.characters = &kAny, .to = begin});
  const auto accept = PatternBuilder(nfa).build(root, begin);
  if (!accept) return fail(Status::exhausted("the pattern takes too large an automaton"));
  nfa.edges[*accept].push_back({.characters = &kAny, .to = *accept});
  return Determiniser(nfa, *accept, work).run();
}

}  // namespace tandem::model::constraint
