#include "weights_sync/handout.h"

#include <algorithm>

namespace tandem::weights_sync {

void Handout::offer(std::shared_ptr<const Offer> offer) { offer_ = std::move(offer); }

std::vector<std::string> Handout::listeners() const {
  std::vector<std::string> names;
  for (const auto& [name, wanted] : listeners_) names.push_back(name);
  return names;
}

std::optional<Manifest> Handout::next_for(const std::string& listener) const {
  const auto found = listeners_.find(listener);
  const auto object = offer_->next_for(found == listeners_.end() ? Wanted{} : found->second);
  if (!object) return std::nullopt;
  Manifest manifest = object->manifest;
  manifest.newest = offer_->newest();
  return manifest;
}

std::optional<std::span<const std::byte>> Handout::chunk(uint64_t base, uint64_t version, uint32_t index, Time now) {
  forget(now);
  auto object = offer_->find(base, version);
  if (base == version) {
    const auto kept = fetched_.find(version);
    if (!object && kept != fetched_.end()) object = kept->second.object;
    if (object && (kept != fetched_.end() || fetched_.size() < kMostKept)) fetched_[version] = {object, now};
  }
  if (!object || index >= object->manifest.digests.size()) return std::nullopt;
  return chunk_of(object->manifest, object->bytes, index);
}

void Handout::forget(Time now) {
  std::erase_if(fetched_, [&](const auto& kept) { return now - kept.second.asked > kForgotten; });
}

}  // namespace tandem::weights_sync
