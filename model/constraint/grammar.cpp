#include "model/constraint/grammar.h"

#include <fmt/format.h>

#include <algorithm>

#include "base/utf8.h"

namespace tandem::model::constraint {

namespace {

uint32_t one_more(uint32_t depth) { return depth >= kMaxNesting ? kNever : depth + 1; }

uint32_t depth_of(const Grammar& grammar, const ArrayRule& array) {
  if (array.least > array.most) return kNever;
  uint32_t inside = 0;
  for (uint32_t i = 0; i < array.least && i <= array.prefix.size(); ++i)
    inside = std::max(inside, grammar.nodes[array.node_of(i)].depth);
  return array.least == 0 ? 1 : one_more(inside);
}

uint32_t depth_of(const Grammar& grammar, const ObjectRule& object) {
  if (object.least > object.most || object.required > object.most) return kNever;
  uint32_t inside = 0;
  std::vector<uint32_t> optional;
  for (const Property& property : object.properties) {
    const uint32_t depth = grammar.nodes[property.node].depth;
    if (property.required)
      inside = std::max(inside, depth);
    else
      optional.push_back(depth);
  }
  bool any = object.required > 0;
  if (object.least > object.required) {
    const size_t more = object.least - object.required;
    const uint32_t extra = object.extra == kNone ? kNever : grammar.nodes[object.extra].depth;
    std::sort(optional.begin(), optional.end());
    inside = std::max(inside, std::min(extra, more <= optional.size() ? optional[more - 1] : kNever));
    any = true;
  }
  return any ? one_more(inside) : 1;
}

// A string of JSON in which an escape stands for the character behind a '<' that begins with the byte of `tag`.
std::string respelled(std::string literal, const std::string& tag) {
  for (size_t at = literal.find(tag); at != std::string::npos; at = literal.find(tag, at)) {
    const Utf8Step step = next_character(std::string_view(literal).substr(at + 1));
    literal.replace(at + 1, step.length, fmt::format("\\u{:04x}", static_cast<uint32_t>(step.character)));
  }
  return literal;
}

class Apartness {
 public:
  explicit Apartness(const Grammar& grammar) : grammar_(grammar) {}

  bool nodes(uint32_t a, uint32_t b, int depth) {
    if (++work_ > kMaxWork) return false;
    const ValueNode &x = grammar_.nodes[a], &y = grammar_.nodes[b];
    if (x.depth == kNever || y.depth == kNever) return true;
    if (a == b || depth > 6) return false;
    for (const auto& literal : x.literals)
      if (!literal_is_apart(literal, y)) return false;
    for (const auto& literal : y.literals)
      if (!literal_is_apart(literal, x)) return false;
    for (const auto& s : x.strings)
      for (const auto& t : y.strings)
        if (!strings_apart(s, t)) return false;
    for (const uint32_t s : x.numbers) {
      for (const uint32_t t : y.numbers) {
        if (!automata_apart(*grammar_.automata[s], *grammar_.automata[t])) return false;
      }
    }
    for (const uint32_t s : x.arrays)
      for (const uint32_t t : y.arrays)
        if (!arrays(grammar_.arrays[s], grammar_.arrays[t], depth)) return false;
    for (const uint32_t s : x.objects)
      for (const uint32_t t : y.objects)
        if (!objects(grammar_.objects[s], grammar_.objects[t], depth)) return false;
    return true;
  }

 private:
  static constexpr int kMaxWork = 10'000;

  static bool automata_apart(const Dfa& a, const Dfa& b) {
    const auto both = Dfa::intersection(a, b);
    return both && both->empty();
  }

  bool strings_apart(const StringRule& a, const StringRule& b) const {
    if (a.automaton == kNone && b.automaton == kNone) return a.most < b.least || b.most < a.least;
    if (a.automaton != kNone && b.automaton != kNone)
      return automata_apart(*grammar_.automata[a.automaton], *grammar_.automata[b.automaton]);
    const StringRule& counted = a.automaton == kNone ? a : b;
    const auto lengths = Dfa::of_length(
        counted.least, counted.most == kUnlimited ? std::nullopt : std::optional<uint32_t>(counted.most));
    return lengths && automata_apart(*grammar_.automata[a.automaton == kNone ? b.automaton : a.automaton], *lengths);
  }

  bool literal_is_apart(const std::string& literal, const ValueNode& node) const {
    if (std::binary_search(node.literals.begin(), node.literals.end(), literal)) return false;
    if (literal[0] == '"') {
      return std::none_of(node.strings.begin(), node.strings.end(), [&](const StringRule& rule) {
        return matches(rule.automaton == kNone ? nullptr : grammar_.automata[rule.automaton].get(), rule, literal);
      });
    }
    // A number may be written in several ways: only of a whole one is the text that is looked for surely the one.
    const bool number = literal[0] == '-' || (literal[0] >= '0' && literal[0] <= '9');
    if (!number || node.numbers.empty()) return true;
    const std::u32string text(literal.begin(), literal.end());
    return literal.find_first_of(".eE") == std::string::npos &&
           std::none_of(node.numbers.begin(), node.numbers.end(),
                        [&](uint32_t a) { return grammar_.automata[a]->matches(text); });
  }

  bool arrays(const ArrayRule& a, const ArrayRule& b, int depth) {
    if (a.depth == kNever || b.depth == kNever || a.most < b.least || b.most < a.least) return true;
    const uint32_t both = std::min<uint32_t>(std::min(a.least, b.least), 16);
    for (uint32_t i = 0; i < both; ++i)
      if (nodes(a.node_of(i), b.node_of(i), depth + 1)) return true;
    return false;
  }

  bool objects(const ObjectRule& a, const ObjectRule& b, int depth) {
    return a.depth == kNever || b.depth == kNever || a.most < b.least || b.most < a.least ||
           required_apart(a, b, depth) || required_apart(b, a, depth);
  }

  // Whether a property that `a` requires cannot be what `b` says of it.
  bool required_apart(const ObjectRule& a, const ObjectRule& b, int depth) {
    for (const Property& property : a.properties) {
      if (!property.required) continue;
      const auto other = std::lower_bound(b.properties.begin(), b.properties.end(), property.name,
                                          [](const Property& p, const std::string& name) { return p.name < name; });
      const bool named = other != b.properties.end() && other->name == property.name;
      const uint32_t node = named ? other->node : b.extra;
      if (node == kNone || nodes(property.node, node, depth + 1)) return true;
    }
    return false;
  }

  const Grammar& grammar_;
  int work_ = 0;
};

}  // namespace

bool matches(const Dfa* dfa, const StringRule& rule, std::string_view quoted) {
  StringState state{dfa != nullptr ? 0 : rule.most, dfa != nullptr ? 0 : rule.least, 0};
  for (size_t i = 1; i < quoted.size(); ++i)
    if (step_string(dfa, state, static_cast<uint8_t>(quoted[i])) == ByteStep::kRefused) return false;
  return true;
}

void find_depths(Grammar& grammar) {
  for (bool changed = true; changed;) {
    changed = false;
    for (ArrayRule& array : grammar.arrays) array.depth = std::min(array.depth, depth_of(grammar, array));
    for (ObjectRule& object : grammar.objects) object.depth = std::min(object.depth, depth_of(grammar, object));
    for (ValueNode& node : grammar.nodes) {
      const bool plain =
          !node.literals.empty() || !node.strings.empty() || !node.numbers.empty() || !node.texts.empty();
      uint32_t depth = plain ? 0 : kNever;
      for (const uint32_t a : node.arrays) depth = std::min(depth, grammar.arrays[a].depth);
      for (const uint32_t o : node.objects) depth = std::min(depth, grammar.objects[o].depth);
      changed = changed || depth < node.depth;
      node.depth = depth;
    }
  }
}

void set_guard(Grammar& grammar, uint8_t guard) {
  grammar.guard = guard;
  const std::string tag = {'<', static_cast<char>(guard)};
  for (ValueNode& node : grammar.nodes) {
    for (std::string& literal : node.literals) literal = respelled(literal, tag);
    std::sort(node.literals.begin(), node.literals.end());
    node.depth = kNever;
  }
  for (ArrayRule& array : grammar.arrays) array.depth = kNever;
  const auto nothing = static_cast<uint32_t>(grammar.nodes.size());
  grammar.nodes.emplace_back();
  for (ObjectRule& object : grammar.objects) {
    object.depth = kNever;
    for (Property& property : object.properties)
      if (property.name.find(tag) != std::string::npos) property.node = nothing;
  }
  find_depths(grammar);
}

bool are_apart(const Grammar& grammar, uint32_t a, uint32_t b) { return Apartness(grammar).nodes(a, b, 0); }

}  // namespace tandem::model::constraint
