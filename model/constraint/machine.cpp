#include "model/constraint/machine.h"

#include <algorithm>

namespace tandem::model::constraint {

namespace {

// Phases of what has several.
enum RootPhase : uint8_t { kBefore, kBehind };
enum ListPhase : uint8_t { kOpened, kAfterValue, kAfterComma, kAfterKey, kAfterColon };

}  // namespace

Machine::Machine(const Grammar& grammar, const std::vector<std::string>& marks) : grammar_(grammar) {
  if (grammar.calls) prepare_calls(marks);
}

bool Machine::takes_space(const Place& place) const {
  switch (place.kind) {
    case Place::kRoot:
      return place.phase == kBefore;
    case Place::kArray:
    case Place::kObject:
    case Place::kStart:
      return true;
    case Place::kPart:
      return part_takes_space(place);
    default:
      return false;
  }
}

bool Machine::step_space(const Place& place, uint8_t byte, std::vector<StackId>& out) {
  if (!is_json_space(byte) || !takes_space(place)) return false;
  if (place.space < kMaxWhiteSpace) {
    Place next = place;
    ++next.space;
    out.push_back(stacks_.push(next));
  }
  return true;
}

void Machine::step(StackId stack, uint8_t byte, std::vector<StackId>& out) {
  const Place place = stacks_[stack];  // a copy: pushing moves them
  switch (place.kind) {
    case Place::kRoot:
      return step_root(place, byte, out);
    case Place::kLiteral:
      return step_literal(place, byte, out);
    case Place::kString: {
      StringState state{place.a, place.b, place.c, grammar_.guard, place.phase != 0};
      const auto result = step_string(automaton(place.d), state, byte);
      if (result == ByteStep::kRefused) return;
      if (result == ByteStep::kClosed) return out.push_back(place.parent);
      Place next = place;
      next.a = state.a;
      next.b = state.b;
      next.c = state.decoder;
      next.phase = state.less ? 1 : 0;
      return out.push_back(stacks_.push(next));
    }
    case Place::kNumber: {
      const int32_t to = automaton(place.d)->next(static_cast<int32_t>(place.a), byte);
      if (to != Dfa::kDead) {
        Place next = place;
        next.a = static_cast<uint32_t>(to);
        out.push_back(stacks_.push(next));
      }
      if (automaton(place.d)->accepts(static_cast<int32_t>(place.a))) step(place.parent, byte, out);
      return;
    }
    case Place::kArray:
      return step_array(place, byte, out);
    case Place::kObject:
      return step_object(place, byte, out);
    case Place::kKey:
      return step_key(place, byte, out);
    case Place::kStart:
      return step_start(place, byte, out);
    case Place::kText:
      return step_text(place, byte, out);
    case Place::kPart:
      return step_part(place, byte, out);
    case Place::kRaw:
      return step_raw(place, byte, out);
  }
}

bool Machine::complete(StackId stack) const {
  const Place& place = stacks_[stack];
  switch (place.kind) {
    case Place::kRoot:
      return place.phase == kBehind;
    case Place::kNumber:
      return automaton(place.d)->accepts(static_cast<int32_t>(place.a)) && complete(place.parent);
    case Place::kLiteral:
      return grammar_.nodes[place.a].literals[place.b].size() == place.d && complete(place.parent);
    case Place::kStart:
    case Place::kText:
      return true;
    case Place::kPart:
      return part_completes(place);
    default:
      return false;
  }
}

void Machine::begin_value(uint32_t node, StackId parent, uint32_t depth, uint8_t byte, std::vector<StackId>& out) {
  const ValueNode& value = grammar_.nodes[node];
  if (!value.literals.empty())
    step_literal({.kind = Place::kLiteral,
                  .depth = depth,
                  .a = node,
                  .c = static_cast<uint32_t>(value.literals.size()),
                  .parent = parent},
                 byte, out);
  for (const uint32_t text : value.texts)
    step_raw({.kind = Place::kRaw, .depth = depth, .d = text, .parent = parent}, byte, out);
  if (byte == '"') {
    for (const StringRule& rule : value.strings) {
      const bool counted = rule.automaton == kNone;
      out.push_back(stacks_.push({.kind = Place::kString,
                                  .depth = depth,
                                  .a = counted ? rule.most : 0,
                                  .b = counted ? rule.least : 0,
                                  .d = rule.automaton,
                                  .parent = parent}));
    }
  } else if (byte == '-' || (byte >= '0' && byte <= '9')) {
    for (const uint32_t number : value.numbers) {
      const int32_t to = automaton(number)->next(Dfa::start(), byte);
      if (to != Dfa::kDead)
        out.push_back(stacks_.push(
            {.kind = Place::kNumber, .depth = depth, .a = static_cast<uint32_t>(to), .d = number, .parent = parent}));
    }
  } else if (byte == '[') {
    for (const uint32_t array : value.arrays) {
      const uint32_t needed = grammar_.arrays[array].depth;
      if (needed != kNever && depth + needed <= kMaxNesting)
        out.push_back(stacks_.push({.kind = Place::kArray, .depth = depth + 1, .a = array, .parent = parent}));
    }
  } else if (byte == '{') {
    for (const uint32_t object : value.objects) {
      const ObjectRule& rule = grammar_.objects[object];
      if (rule.depth == kNever || depth + rule.depth > kMaxNesting) continue;
      KeySet keys{.named = std::vector<uint64_t>((rule.properties.size() + 63) / 64), .required_left = rule.required};
      out.push_back(stacks_.push({.kind = Place::kObject,
                                  .depth = depth + 1,
                                  .a = object,
                                  .c = stacks_.intern(std::move(keys)),
                                  .parent = parent}));
    }
  }
}

void Machine::step_root(Place place, uint8_t byte, std::vector<StackId>& out) {
  // White space behind the value would only let a model go on that does not find an end.
  if (step_space(place, byte, out) || place.phase == kBehind) return;
  place.phase = kBehind;
  place.space = 0;
  begin_value(grammar_.root, stacks_.push(place), 0, byte, out);
}

// The literals from b to c begin with the d bytes so far.
void Machine::step_literal(Place place, uint8_t byte, std::vector<StackId>& out) {
  const auto& literals = grammar_.nodes[place.a].literals;
  if (literals[place.b].size() == place.d) step(place.parent, byte, out);
  const auto byte_of = [&](const std::string& literal) {
    return literal.size() > place.d ? static_cast<int>(static_cast<uint8_t>(literal[place.d])) : -1;
  };
  const auto from = literals.begin() + place.b, to = literals.begin() + place.c;
  const auto first = std::partition_point(from, to, [&](const auto& l) { return byte_of(l) < byte; });
  const auto last = std::partition_point(first, to, [&](const auto& l) { return byte_of(l) == byte; });
  if (first == last) return;
  place.b = static_cast<uint32_t>(first - literals.begin());
  place.c = static_cast<uint32_t>(last - literals.begin());
  ++place.d;
  if (last - first == 1 && literals[place.b].size() == place.d) return out.push_back(place.parent);
  out.push_back(stacks_.push(place));
}

void Machine::step_array(Place place, uint8_t byte, std::vector<StackId>& out) {
  if (step_space(place, byte, out)) return;
  const ArrayRule& rule = grammar_.arrays[place.a];
  const bool more = place.b < rule.most && fits(rule.node_of(place.b), place.depth);
  place.space = 0;
  if (place.phase != kAfterComma && byte == ']' && place.b >= rule.least) return out.push_back(place.parent);
  if (!more) return;
  if (place.phase == kAfterValue) {
    if (byte != ',') return;
    place.phase = kAfterComma;
    return out.push_back(stacks_.push(place));
  }
  const uint32_t node = rule.node_of(place.b), depth = place.depth;
  // Behind the last one that a rule tells apart, items need not be counted.
  const auto distinct = std::max<size_t>(rule.prefix.size(), rule.least);
  if (rule.most != kUnlimited || place.b < distinct) ++place.b;
  place.phase = kAfterValue;
  begin_value(node, stacks_.push(place), depth, byte, out);
}

bool Machine::may_have(const Place& object, uint32_t property) const {
  const ObjectRule& rule = grammar_.objects[object.a];
  const KeySet& keys = stacks_.keys(object.c);
  const Property& p = rule.properties[property];
  const uint64_t left = keys.required_left - (p.required && !keys.has(property) ? 1u : 0u);
  return !keys.has(property) && keys.count + 1 + left <= rule.most && fits(p.node, object.depth);
}

bool Machine::may_have_other(const Place& object) const {
  const ObjectRule& rule = grammar_.objects[object.a];
  const KeySet& keys = stacks_.keys(object.c);
  return rule.extra != kNone && uint64_t{keys.count} + 1 + keys.required_left <= rule.most &&
         fits(rule.extra, object.depth);
}

bool Machine::may_have_key(const Place& object) const {
  if (may_have_other(object)) return true;
  for (uint32_t i = 0; i < grammar_.objects[object.a].properties.size(); ++i)
    if (may_have(object, i)) return true;
  return false;
}

void Machine::step_object(Place place, uint8_t byte, std::vector<StackId>& out) {
  if (step_space(place, byte, out)) return;
  const ObjectRule& rule = grammar_.objects[place.a];
  place.space = 0;
  switch (place.phase) {
    case kOpened:
    case kAfterValue:
      if (byte == '}') {
        const KeySet& keys = stacks_.keys(place.c);
        if (keys.required_left == 0 && keys.count >= rule.least) out.push_back(place.parent);
        return;
      }
      if (byte != (place.phase == kOpened ? '"' : ',') || !may_have_key(place)) return;
      if (place.phase == kAfterValue) {
        place.phase = kAfterComma;
        return out.push_back(stacks_.push(place));
      }
      break;
    case kAfterComma:
      if (byte != '"') return;
      break;
    case kAfterKey:
      if (byte != ':') return;
      place.phase = kAfterColon;
      return out.push_back(stacks_.push(place));
    case kAfterColon: {
      const uint32_t node = place.d, depth = place.depth;
      place.phase = kAfterValue;
      place.d = 0;
      return begin_value(node, stacks_.push(place), depth, byte, out);
    }
    default:
      return;
  }
  place.kind = Place::kKey;
  place.phase = 0;
  place.b = stacks_.intern(std::string());
  place.d = 0;
  out.push_back(stacks_.push(place));
}

KeySet Machine::with_property(uint32_t before, uint32_t object, uint32_t property) const {
  KeySet keys = stacks_.keys(before);
  keys.named[property / 64] |= uint64_t{1} << (property % 64);
  ++keys.count;
  if (grammar_.objects[object].properties[property].required) --keys.required_left;
  return keys;
}

StackId Machine::behind_property(const Place& key, uint32_t property) {
  const Property& p = grammar_.objects[key.a].properties[property];
  KeySet keys = with_property(key.c, key.a, property);
  return stacks_.push({.kind = Place::kObject,
                       .phase = kAfterKey,
                       .depth = key.depth,
                       .a = key.a,
                       .c = stacks_.intern(std::move(keys)),
                       .d = p.node,
                       .parent = key.parent});
}

StackId Machine::behind_other(const Place& key, const std::string* name) {
  KeySet keys = stacks_.keys(key.c);
  ++keys.count;
  if (name != nullptr)
    keys.others.insert(std::lower_bound(keys.others.begin(), keys.others.end(), *name), *name);
  else
    keys.unsure = true;
  return stacks_.push({.kind = Place::kObject,
                       .phase = kAfterKey,
                       .depth = key.depth,
                       .a = key.a,
                       .c = stacks_.intern(std::move(keys)),
                       .d = grammar_.objects[key.a].extra,
                       .parent = key.parent});
}

void Machine::step_key(Place place, uint8_t byte, std::vector<StackId>& out) {
  const auto& properties = grammar_.objects[place.a].properties;
  StringState state{.decoder = place.d, .guard = grammar_.guard, .less = place.phase != 0};
  const auto result = step_canonical(state, byte);
  if (result == ByteStep::kRefused) return;
  std::string name = stacks_.text(place.b);
  const auto by_name = [](const Property& p, const std::string& other) { return p.name < other; };
  if (result == ByteStep::kClosed) {
    const auto found = std::lower_bound(properties.begin(), properties.end(), name, by_name);
    if (found != properties.end() && found->name == name) {
      const auto number = static_cast<uint32_t>(found - properties.begin());
      if (may_have(place, number)) out.push_back(behind_property(place, number));
      return;
    }
    const auto& others = stacks_.keys(place.c).others;
    if (may_have_other(place) && !std::binary_search(others.begin(), others.end(), name))
      out.push_back(behind_other(place, &name));
    return;
  }
  name += static_cast<char>(byte);
  bool possible = may_have_other(place);
  for (auto p = std::lower_bound(properties.begin(), properties.end(), name, by_name);
       !possible && p != properties.end() && p->name.starts_with(name); ++p)
    possible = may_have(place, static_cast<uint32_t>(p - properties.begin()));
  if (!possible) return;
  place.b = stacks_.intern(std::move(name));
  place.d = state.decoder;
  place.phase = state.less ? 1 : 0;
  out.push_back(stacks_.push(place));
}

}  // namespace tandem::model::constraint
