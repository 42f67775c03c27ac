#include "model/constraint/stacks.h"

#include <functional>

namespace tandem::model::constraint {

namespace {

uint64_t mixed(uint64_t hash, uint64_t value) {
  hash = (hash ^ value) * 0x9E3779B97F4A7C15u;
  return hash ^ hash >> 29;
}

}  // namespace

size_t Stacks::PlaceHash::operator()(const Place& p) const {
  uint64_t hash = uint64_t{p.kind} | uint64_t{p.phase} << 8 | uint64_t{p.space} << 16 | uint64_t{p.depth} << 32;
  hash = mixed(hash, p.a | uint64_t{p.b} << 32);
  hash = mixed(hash, p.c | uint64_t{p.d} << 32);
  return mixed(hash, p.parent);
}

StackId Stacks::push(const Place& place) {
  const auto [found, fresh] = place_numbers_.try_emplace(place, static_cast<StackId>(places_.size()));
  if (fresh) places_.push_back(place);
  return found->second;
}

uint32_t Stacks::intern(KeySet keys) {
  uint64_t hash = mixed(keys.count, keys.required_left | uint64_t{keys.unsure} << 32);
  for (const uint64_t word : keys.named) hash = mixed(hash, word);
  for (const auto& other : keys.others) hash = mixed(hash, std::hash<std::string>()(other));
  const auto [begin, end] = key_set_numbers_.equal_range(hash);
  for (auto at = begin; at != end; ++at)
    if (key_sets_[at->second] == keys) return at->second;
  const auto number = static_cast<uint32_t>(key_sets_.size());
  key_set_numbers_.emplace(hash, number);
  key_sets_.push_back(std::move(keys));
  return number;
}

uint32_t Stacks::intern(std::string text) {
  const auto [found, fresh] = text_numbers_.try_emplace(text, static_cast<uint32_t>(texts_.size()));
  if (fresh) texts_.push_back(std::move(text));
  return found->second;
}

void Stacks::keep(std::vector<StackId>& stacks) {
  Stacks kept;
  std::unordered_map<StackId, StackId> moved;
  const std::function<StackId(StackId)> move = [&](StackId id) {
    if (id == kNoStack) return id;
    if (const auto found = moved.find(id); found != moved.end()) return found->second;
    Place place = places_[id];
    place.parent = move(place.parent);
    if (place.kind == Place::kObject || place.kind == Place::kKey) place.c = kept.intern(key_sets_[place.c]);
    if (place.kind == Place::kPart && place.c != kNoKeys) place.c = kept.intern(key_sets_[place.c]);
    if (place.kind == Place::kKey) place.b = kept.intern(texts_[place.b]);
    return moved[id] = kept.push(place);
  };
  for (StackId& stack : stacks) stack = move(stack);
  *this = std::move(kept);
}

}  // namespace tandem::model::constraint
