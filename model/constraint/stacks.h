// Where a text stands in a grammar: stacks of places, whose lower parts are shared, each kept once.
//
// A stack is the number of its top; equal stacks have equal numbers. What objects have seen of their keys, and what a
// key says so far, is kept beside them in the same way.
//
// Thread safety: none.
#pragma once

#include <cstdint>
#include <string>
#include <unordered_map>
#include <vector>

namespace tandem::model::constraint {

using StackId = uint32_t;
inline constexpr StackId kNoStack = UINT32_MAX;

struct Place {
  enum Kind : uint8_t { kRoot, kLiteral, kString, kNumber, kArray, kObject, kKey, kStart, kText, kPart, kRaw };
  Kind kind = kRoot;
  uint8_t phase = 0;
  uint16_t space = 0;  // bytes of white space just before
  uint32_t depth = 0;  // of brackets around what comes next
  uint32_t a = 0, b = 0, c = 0, d = 0;
  StackId parent = kNoStack;
  friend bool operator==(const Place&, const Place&) = default;
};
inline constexpr uint32_t kNoKeys = UINT32_MAX;  // of a part that stands in no arguments

// The keys that an object has so far.
struct KeySet {
  std::vector<uint64_t> named;      // a bit for each property of the rule
  std::vector<std::string> others;  // ascending
  uint32_t count = 0;
  uint32_t required_left = 0;
  bool unsure = false;  // one more that is not known: all tokens that end it are looked at together
  bool has(uint32_t property) const { return (named[property / 64] >> (property % 64) & 1) != 0; }
  friend bool operator==(const KeySet&, const KeySet&) = default;
};

class Stacks {
 public:
  StackId push(const Place& place);
  const Place& operator[](StackId id) const { return places_[id]; }
  uint32_t intern(KeySet keys);
  const KeySet& keys(uint32_t id) const { return key_sets_[id]; }
  uint32_t intern(std::string text);
  const std::string& text(uint32_t id) const { return texts_[id]; }

  // Forgets all but these, whose numbers change.
  void keep(std::vector<StackId>& stacks);
  size_t size() const { return places_.size() + key_sets_.size() + texts_.size(); }

 private:
  struct PlaceHash {
    size_t operator()(const Place& place) const;
  };
  std::vector<Place> places_;
  std::unordered_map<Place, StackId, PlaceHash> place_numbers_;
  std::vector<KeySet> key_sets_;
  std::unordered_multimap<size_t, uint32_t> key_set_numbers_;  // by hash
  std::vector<std::string> texts_;
  std::unordered_map<std::string, uint32_t> text_numbers_;
};

}  // namespace tandem::model::constraint
