// What stands around values: free text, and the parts of calls.
#include <algorithm>
#include <map>

#include "model/constraint/machine.h"

namespace tandem::model::constraint {

namespace {

enum PartPhase : uint8_t { kInside, kMachineCallsBehind };

}  // namespace

void Machine::prepare_calls(const std::vector<std::string>& marks) {
  const CallGraph& calls = *grammar_.calls;
  const auto is_mark = [&](const std::string& text) {
    return std::find(marks.begin(), marks.end(), text) != marks.end();
  };
  for (const Part& part : calls.parts) marks_.push_back(!part.text.empty() && is_mark(part.text));
  text_ends_by_mark_ = !calls.stops.empty() && is_mark(calls.stops[0]);

  // States are the beginnings of tags; the text ends with the longest of them that it can.
  std::vector<std::string> states = {""};
  std::map<std::string, uint32_t> numbers = {{"", 0}};
  for (const auto& stop : calls.stops) {
    for (size_t length = 1; length < stop.size(); ++length)
      if (numbers.try_emplace(stop.substr(0, length), static_cast<uint32_t>(states.size())).second)
        states.push_back(stop.substr(0, length));
  }
  const auto closed = static_cast<uint32_t>(states.size());
  for (const auto& state : states) {
    auto& row = text_steps_.emplace_back();
    for (int byte = 0; byte < 256; ++byte) {
      std::string seen = state + static_cast<char>(byte);
      while (!numbers.contains(seen) && std::find(calls.stops.begin(), calls.stops.end(), seen) == calls.stops.end())
        seen.erase(0, 1);
      const auto found = numbers.find(seen);
      const bool ends = found == numbers.end() && seen == calls.stops[0] && !text_ends_by_mark_;
      row[byte] = found != numbers.end() ? found->second : ends ? closed : closed + 1;
    }
  }
}

StackId Machine::begin() {
  if (!grammar_.calls) return stacks_.push({.kind = Place::kRoot, .a = grammar_.root});
  const CallGraph& calls = *grammar_.calls;
  if (!calls.text) return behind_part(calls.first);
  return stacks_.push({.kind = calls.starts_with_call ? Place::kStart : Place::kText});
}

// For dialects whose calls have no opening tag: a brace begins a call, anything else a text.
void Machine::step_start(Place place, uint8_t byte, std::vector<StackId>& out) {
  if (step_space(place, byte, out)) return;
  const CallGraph& calls = *grammar_.calls;
  if (byte != '{') return step_text({.kind = Place::kText}, byte, out);
  if (calls.first != kNone) step(behind_part(calls.first), byte, out);
}

void Machine::step_text(Place place, uint8_t byte, std::vector<StackId>& out) {
  const uint32_t state = step_text(place.a, byte);
  if (state > text_steps_.size()) return;
  if (state == text_steps_.size()) {
    if (const StackId behind = behind_text(); behind != kNoStack) out.push_back(behind);
    return;
  }
  place.a = state;
  out.push_back(stacks_.push(place));
}

StackId Machine::behind_text() {
  const uint32_t part = grammar_.calls->behind_text;
  return part == kNone || text_ends_by_mark_ ? kNoStack : behind_part(part);
}

StackId Machine::behind_part(uint32_t number, uint32_t keys) {
  return stacks_.push({.kind = Place::kPart, .phase = kMachineCallsBehind, .a = number, .c = keys});
}

bool Machine::part_takes_space(const Place& place) const {
  const Part& part = grammar_.calls->parts[place.a];
  return place.phase == kMachineCallsBehind && part.space && !part.next.empty();
}

// White space behind a call is followed by another one.
bool Machine::part_completes(const Place& place) const {
  return place.phase == kMachineCallsBehind && place.space == 0 && grammar_.calls->parts[place.a].ends;
}

// a: the part; b: how many of its bytes there are; c: the keys of the arguments so far.
void Machine::step_part(Place place, uint8_t byte, std::vector<StackId>& out) {
  const Part& part = grammar_.calls->parts[place.a];
  if (place.phase == kMachineCallsBehind) {
    if (step_space(place, byte, out)) return;
    for (const uint32_t next : part.next) begin_part(next, place.c, byte, out);
    return;
  }
  if (static_cast<uint8_t>(part.text[place.b]) != byte) return;
  ++place.b;
  out.push_back(place.b == part.text.size() ? behind_part(place.a, place.c) : stacks_.push(place));
}

void Machine::begin_part(uint32_t number, uint32_t keys, uint8_t byte, std::vector<StackId>& out) {
  const Part& part = grammar_.calls->parts[number];
  if (!enter(part, keys)) return;
  if (part.node != kNone) return begin_value(part.node, behind_part(number, keys), 0, byte, out);
  if (!marks_[number]) step_part({.kind = Place::kPart, .phase = kInside, .a = number, .c = keys}, byte, out);
}

bool Machine::enter(const Part& part, uint32_t& keys) {
  if (part.turn == Part::kAlways) return true;
  const ObjectRule& rule = grammar_.objects[part.object];
  const Place object = {.kind = Place::kObject, .a = part.object, .c = keys};
  switch (part.turn) {
    case Part::kOpens:
      keys = stacks_.intern(
          KeySet{.named = std::vector<uint64_t>((rule.properties.size() + 63) / 64), .required_left = rule.required});
      return true;
    case Part::kIfMore:
      return may_have_key(object);
    case Part::kTakes:
      if (!may_have(object, part.property)) return false;
      keys = stacks_.intern(with_property(keys, part.object, part.property));
      return true;
    default:
      if (stacks_.keys(keys).required_left > 0 || stacks_.keys(keys).count < rule.least) return false;
      keys = kNoKeys;
      return true;
  }
}

// A text without quotes, which ends where its automaton accepts and what is behind it goes on.
void Machine::step_raw(Place place, uint8_t byte, std::vector<StackId>& out) {
  const Dfa& dfa = *automaton(place.d);
  if (place.c == 0 && dfa.accepts(static_cast<int32_t>(place.a))) step(place.parent, byte, out);
  StringState state{.a = place.a, .decoder = place.c};
  if (constraint::step_raw(dfa, state, byte) == ByteStep::kRefused) return;
  place.a = state.a;
  place.c = state.decoder;
  out.push_back(stacks_.push(place));
}

bool Machine::may_be_nothing(uint32_t node) const {
  const ValueNode& value = grammar_.nodes[node];
  return (!value.literals.empty() && value.literals.front().empty()) ||
         std::any_of(value.texts.begin(), value.texts.end(),
                     [&](uint32_t text) { return automaton(text)->accepts(Dfa::start()); });
}

void Machine::step_mark(StackId stack, std::string_view mark, std::vector<StackId>& out) {
  const Place place = stacks_[stack];
  const CallGraph& calls = *grammar_.calls;
  if (place.kind == Place::kNumber || place.kind == Place::kLiteral || place.kind == Place::kRaw) {
    const bool over = place.kind == Place::kLiteral ? grammar_.nodes[place.a].literals[place.b].size() == place.d
                                                    : (place.kind == Place::kNumber || place.c == 0) &&
                                                          automaton(place.d)->accepts(static_cast<int32_t>(place.a));
    if (over) step_mark(place.parent, mark, out);
    return;
  }
  if (place.kind == Place::kText) {
    if (text_ends_by_mark_ && mark == calls.stops[0] && calls.behind_text != kNone)
      out.push_back(behind_part(calls.behind_text));
    return;
  }
  if (place.kind != Place::kPart || place.phase != kMachineCallsBehind) return;
  for (const uint32_t next : calls.parts[place.a].next) {
    const Part& part = calls.parts[next];
    uint32_t keys = place.c;
    const bool fits = part.node != kNone ? may_be_nothing(part.node) : marks_[next] && part.text == mark;
    if (!fits || !enter(part, keys)) continue;
    const StackId behind = behind_part(next, keys);
    if (part.node != kNone)
      step_mark(behind, mark, out);
    else
      out.push_back(behind);
  }
}

}  // namespace tandem::model::constraint
