// A deterministic automaton over the characters of Unicode, from every state of which it can still accept.
//
// Characters that no state tells apart share a class. Surrogates are in no class: no text has them. Transitions into
// states from which nothing is accepted are cut when an automaton is made, so who follows transitions never gets stuck.
//
// Thread safety: immutable.
#pragma once

#include <array>
#include <cstdint>
#include <optional>
#include <vector>

#include "base/status.h"

namespace tandem::model::constraint {

struct CharacterRange {
  char32_t first = 0, last = 0;  // both included
  friend bool operator==(const CharacterRange&, const CharacterRange&) = default;
};
inline constexpr char32_t kLastCharacter = 0x10FFFF;

class Dfa {
 public:
  static constexpr int32_t kDead = -1;
  static constexpr size_t kMaxEntries = size_t{1} << 22;  // states x classes

  // `starts` are the first characters of the classes, ascending, beginning with 0; `next` has a row of classes for each
  // state; state 0 is where it begins.
  Dfa(std::vector<char32_t> starts, std::vector<int32_t> next, std::vector<bool> accepting);

  // All texts of `least` to `most` characters.
  static Result<Dfa> of_length(uint32_t least, std::optional<uint32_t> most);
  // The intersection. kExhausted where that takes more than kMaxEntries.
  static Result<Dfa> intersection(const Dfa& a, const Dfa& b);

  // The complement.
  static Dfa complement(const Dfa& a);

  bool empty() const { return empty_; }  // accepts nothing
  static constexpr int32_t start() { return 0; }
  int32_t next(int32_t state, char32_t character) const {
    return next_[static_cast<size_t>(state) * classes() + class_of(character)];
  }
  bool accepts(int32_t state) const { return accepting_[state]; }
  // Whether one of the characters from `first` to `last` leads on.
  bool leads_on(int32_t state, char32_t first, char32_t last) const;

  // By class, the first that no state tells apart from it; kNoColumn where none leads on.
  static constexpr uint32_t kNoColumn = UINT32_MAX;
  std::vector<uint32_t> columns() const;
  size_t class_of(char32_t character) const;
  bool is_of_surrogates(size_t number) const { return starts_[number] >= 0xD800 && starts_[number] < 0xE000; }

  // Whether none of them leads anywhere else.
  bool stays(int32_t state, char32_t first, char32_t last) const;

  bool matches(std::u32string_view text) const;
  size_t states() const { return accepting_.size(); }
  // Differs between any two automata of a process; copies keep it.
  uint64_t serial() const { return serial_; }

 private:
  size_t classes() const { return starts_.size(); }

  std::vector<char32_t> starts_;
  std::vector<int32_t> next_;
  std::vector<bool> accepting_;
  std::array<uint16_t, 128> ascii_{};
  bool empty_ = false;
  uint64_t serial_ = 0;
};

}  // namespace tandem::model::constraint
