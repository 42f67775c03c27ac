// The compiled grammar of a constrained text: values by schema, and around them, for tool calls, the tags of a dialect.
//
// Nodes are values; they refer to each other by number, so a recursive schema is a cycle. Every node has the least
// depth of brackets that a value of it needs, so that whoever follows the grammar never begins what cannot be ended
// within kMaxNesting. Thread safety: immutable once made.
#pragma once

#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "model/constraint/dfa.h"
#include "model/constraint/string_state.h"

namespace tandem::model::constraint {

inline constexpr uint32_t kMaxNesting = 64;     // of brackets, as parse_json reads them
inline constexpr uint32_t kMaxWhiteSpace = 64;  // bytes in a row
inline constexpr uint32_t kNever = UINT32_MAX;  // the depth of what has no value
inline constexpr uint32_t kNone = UINT32_MAX;   // no node

struct StringRule {
  uint32_t automaton = kNone;  // kNone: lengths alone
  uint32_t least = 0, most = kUnlimited;
};

struct ArrayRule {
  std::vector<uint32_t> prefix;  // nodes of the first items
  uint32_t items = kNone;        // of those behind
  uint32_t least = 0, most = kUnlimited;
  uint32_t depth = kNever;
  uint32_t node_of(uint32_t index) const { return index < prefix.size() ? prefix[index] : items; }
};

struct Property {
  std::string name;  // as it is spelled between the quotes
  uint32_t node = kNone;
  bool required = false;
};

struct ObjectRule {
  std::vector<Property> properties;  // by name, ascending
  uint32_t extra = kNone;            // node of all other names; kNone: there are no others
  uint32_t required = 0;             // how many are
  uint32_t least = 0, most = kUnlimited;
  uint32_t depth = kNever;
};

// A value is one of all of these.
struct ValueNode {
  std::vector<std::string> literals;  // as they are spelled, ascending
  std::vector<StringRule> strings;
  std::vector<uint32_t> numbers;  // automata
  std::vector<uint32_t> texts;    // automata of texts that stand without quotes, in dialects that write them so
  std::vector<uint32_t> arrays, objects;
  uint32_t depth = kNever;
};

// A piece of what stands around values in a message with calls: bytes as they are written, or a value, or nothing.
struct Part {
  std::string text;
  uint32_t node = kNone;       // of the value
  bool space = false;          // may stand behind it, where another part follows
  bool ends = false;           // the message may end behind it
  std::vector<uint32_t> next;  // of which one follows
  // For arguments that are parts each: what the part does, or when it may come.
  enum Turn : uint8_t { kAlways, kOpens, kIfMore, kTakes, kIfEnough };
  Turn turn = kAlways;
  uint32_t object = kNone, property = kNone;
};

// Text and calls, as parts that lead to each other.
struct CallGraph {
  std::vector<Part> parts;
  uint32_t first = kNone;  // a part of nothing that leads to the first call; kNone: there are no calls
  bool text = false;       // may be the whole message, or stand before the calls
  // Never part of a text. Where calls may follow a text, the first of them begins them, and is the part `behind_text`.
  std::vector<std::string> stops;
  uint32_t behind_text = kNone;
  bool starts_with_call = false;  // a brace that a message starts with is no text
};

struct Grammar {
  std::vector<std::shared_ptr<const Dfa>> automata;
  std::vector<ValueNode> nodes;
  std::vector<ArrayRule> arrays;
  std::vector<ObjectRule> objects;
  uint32_t root = kNone;          // of a message that is one value
  std::vector<uint32_t> entries;  // other nodes that were asked for
  // For strings and keys, as they are written: a byte that never stands behind a '<', so that no tag of a dialect is
  // in them; 0: any may.
  uint8_t guard = 0;
  std::optional<CallGraph> calls;
};

// Whether a string of JSON, quotes included, follows a rule; `dfa` is the rule's automaton, null where it has none.
bool matches(const Dfa* dfa, const StringRule& rule, std::string_view quoted);

// Sets the depths of all nodes.
void find_depths(Grammar& grammar);

// Spells strings by `guard`, and leaves out properties whose names cannot be spelled so. Depths are set anew.
void set_guard(Grammar& grammar, uint8_t guard);

// Whether no text is a value of both, as far as types, spelled values, bounds and required properties tell.
bool are_apart(const Grammar& grammar, uint32_t a, uint32_t b);

}  // namespace tandem::model::constraint
