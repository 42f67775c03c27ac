// What stands around values: free text, and calls between tags.
#include "model/constraint/machine.h"

namespace tandem::model::constraint {

namespace {

enum CallPhase : uint8_t { kBetween, kInside, kClosing, kAfterSeparator };

}  // namespace

void Machine::make_text_steps() {
  if (!grammar_.tags) return;
  const std::string& tag = grammar_.tags->stop;
  for (size_t state = 0; state < tag.size(); ++state) {
    auto& row = text_steps_.emplace_back();
    for (int byte = 0; byte < 256; ++byte) {
      std::string seen = tag.substr(0, state) + static_cast<char>(byte);
      while (!std::string_view(tag).starts_with(seen)) seen.erase(0, 1);
      row[byte] = static_cast<uint32_t>(seen.size());
    }
  }
}

StackId Machine::begin() {
  if (!grammar_.tags) return stacks_.push({.kind = Place::kRoot, .a = grammar_.root});
  const CallTags& tags = *grammar_.tags;
  if (tags.open.empty()) return stacks_.push({.kind = Place::kStart});
  return stacks_.push({.kind = tags.text ? Place::kText : Place::kCalls});
}

bool Machine::calls_take_space(const Place& place) const {
  return place.b == 0 && (place.phase != kBetween || place.a < grammar_.tags->most);
}

bool Machine::calls_complete(const Place& place) const {
  return place.phase == kBetween && place.b == 0 && place.space == 0 && place.a >= grammar_.tags->least;
}

// Of dialects without an opening tag: a brace begins a call, anything else a text.
void Machine::step_start(Place place, uint8_t byte, std::vector<StackId>& out) {
  const CallTags& tags = *grammar_.tags;
  if (step_space(place, byte, out)) return;
  if (byte == '{') {
    if (tags.most == 0) return;
    const Place call = {.kind = Place::kCalls, .phase = kInside, .a = 1};
    return step_calls(call, byte, out);
  }
  if (tags.text) step_text({.kind = Place::kText}, byte, out);
}

void Machine::step_text(Place place, uint8_t byte, std::vector<StackId>& out) {
  const uint32_t state = step_text(place.a, byte);
  if (state == grammar_.tags->stop.size()) {
    if (const StackId behind = behind_text(); behind != kNoStack) out.push_back(behind);
    return;
  }
  place.a = state;
  out.push_back(stacks_.push(place));
}

StackId Machine::behind_text() {
  const CallTags& tags = *grammar_.tags;
  if (tags.open.empty() || tags.most == 0) return kNoStack;
  return stacks_.push({.kind = Place::kCalls, .phase = kInside, .a = 1});
}

// a: calls begun; b: bytes of the tag so far. White space behind a call is followed by another one.
void Machine::step_calls(Place place, uint8_t byte, std::vector<StackId>& out) {
  const CallTags& tags = *grammar_.tags;
  if (step_space(place, byte, out)) return;
  place.space = 0;
  switch (place.phase) {
    case kInside: {
      Place behind = place;
      behind.phase = tags.close.empty() ? kBetween : kClosing;
      return begin_value(grammar_.root, stacks_.push(behind), 0, byte, out);
    }
    case kClosing:
      if (static_cast<uint8_t>(tags.close[place.b]) != byte) return;
      if (++place.b == tags.close.size()) {
        place.b = 0;
        place.phase = kBetween;
      }
      return out.push_back(stacks_.push(place));
    default: {
      if (place.a >= tags.most) return;
      if (place.phase == kBetween && place.b == 0 && place.a > 0 && !tags.separator.empty()) {
        if (static_cast<uint8_t>(tags.separator[0]) != byte) return;
        place.phase = kAfterSeparator;
        return out.push_back(stacks_.push(place));
      }
      if (tags.open.empty()) {
        place.phase = kInside;
        ++place.a;
        return step_calls(place, byte, out);
      }
      if (static_cast<uint8_t>(tags.open[place.b]) != byte) return;
      if (++place.b == tags.open.size()) {
        place.b = 0;
        place.phase = kInside;
        ++place.a;
      }
      return out.push_back(stacks_.push(place));
    }
  }
}

}  // namespace tandem::model::constraint
