#include "weights_sync/history.h"

#include <spdlog/spdlog.h>

#include <algorithm>
#include <cstring>

namespace tandem::weights_sync {

namespace {

std::span<const std::byte> view(const Buffer<std::byte>& buffer) { return {buffer.data(), buffer.size()}; }

}  // namespace

size_t Offer::delta_bytes() const {
  // The last one that ends in the newest version and begins latest.
  size_t bytes = 0;
  for (const auto& [key, object] : deltas_)
    if (key.second == newest_) bytes = object->bytes.size();
  return bytes;
}

std::shared_ptr<const Object> Offer::find(uint64_t base, uint64_t version) const {
  if (base == version) return version == newest_ ? whole_ : nullptr;
  const auto found = deltas_.find({base, version});
  return found == deltas_.end() ? nullptr : found->second;
}

std::shared_ptr<const Object> Offer::next_for(const Wanted& wanted) const {
  if (!wanted.holds) return whole_;
  if (wanted.version == newest_ && wanted.digest == digest_of_parts(whole_->manifest.parts)) return nullptr;
  // Bytes of the same number may be those of a trainer that had gone on from an older checkpoint.
  if (const auto known = digests_.find(wanted.version); known == digests_.end() || known->second != wanted.digest)
    return whole_;
  std::shared_ptr<const Object> first;
  size_t bytes = 0;
  for (uint64_t at = wanted.version; at != newest_;) {
    // The longest step from here: keys are in order of base, then version.
    auto step = deltas_.upper_bound({at, UINT64_MAX});
    if (step == deltas_.begin() || (--step)->first.first != at) return whole_;
    if (!first) first = step->second;
    bytes += step->second->bytes.size();
    at = step->first.second;
  }
  return bytes < whole_->bytes.size() ? first : whole_;
}

std::shared_ptr<const Offer> History::add(uint64_t version, std::span<const std::byte> wire,
                                          kernels::ThreadPool& threads) {
  auto offer = last_ ? std::make_shared<Offer>(*last_) : std::make_shared<Offer>();
  Bytes bytes;
  if (before_ && before_.use_count() == 1)
    bytes = std::exchange(before_, nullptr);
  else
    bytes = std::make_shared<Buffer<std::byte>>(blocks_.bytes());
  const bool differs = settings_.deltas && last_;
  // One pass over memory: what changed, the copy, its digests.
  const auto& blocks = blocks_.all();
  std::vector<std::vector<std::byte>> changes(blocks.size());
  std::vector<Digest> digests(blocks.size());
  threads.run(static_cast<int>(blocks.size()), [&](int i) {
    const Block& block = blocks[i];
    const auto after = wire.subspan(block.begin, block.bytes());
    if (differs) {
      const auto changed = difference(block, view(*newest_).subspan(block.begin, block.bytes()), after);
      if (changed.changes()) changes[i] = encode(block, changed);
    }
    std::memcpy(bytes->data() + block.begin, after.data(), after.size());
    digests[i] = digest_of(after);
  });
  const uint64_t base = last_ ? last_->newest_ : version;
  before_ = std::exchange(newest_, bytes);
  auto whole = std::make_shared<Object>(Object{
      .manifest = make_manifest(version, view(*bytes), format_, &threads), .bytes = view(*bytes), .owner = bytes});
  whole->manifest.parts = blocks_.digests_of_parts(digests);
  offer->newest_ = version;
  offer->whole_ = whole;
  if (settings_.deltas) {
    offer->digests_[version] = digest_of_parts(whole->manifest.parts);
    if (differs) {
      Delta delta(base, version);
      for (size_t i = 0; i < changes.size(); ++i)
        if (!changes[i].empty()) delta.add(static_cast<uint32_t>(i), std::move(changes[i]));
      add_delta(*offer, std::move(delta));
      fold(*offer, threads);
      forget_oldest(*offer);
    }
  }
  last_ = offer;
  return offer;
}

void History::add_delta(Offer& offer, Delta delta) {
  if (delta.bytes() >= blocks_.bytes()) return;  // the weights themselves are less
  const auto bytes = std::make_shared<std::vector<std::byte>>(delta.write(blocks_));
  Manifest manifest = make_manifest(delta.version(), *bytes, format_);
  manifest.base = delta.base();
  manifest.base_digest = offer.digests_.at(delta.base());
  manifest.parts = offer.whole_->manifest.parts;
  offer.deltas_[{delta.base(), delta.version()}] =
      std::make_shared<Object>(Object{.manifest = std::move(manifest), .bytes = *bytes, .owner = bytes});
}

// A version that 2^k divides has a delta on the one 2^k before: that of half the way, and the newest half.
void History::fold(Offer& offer, kernels::ThreadPool& threads) {
  const uint64_t version = offer.newest_;
  for (uint64_t step = 2; version % step == 0 && version >= step; step *= 2) {
    const uint64_t middle = version - step / 2, base = version - step;
    const auto first = offer.find(base, middle), second = offer.find(middle, version);
    if (!first || !second || !offer.digests_.contains(base)) return;
    const auto one = Delta::read(blocks_, first->bytes), two = Delta::read(blocks_, second->bytes);
    if (!one || !two) return;
    auto folded = one->folded_with(*two, blocks_, threads);
    if (!folded) return spdlog::error("weights {}: {}", version, folded.error().message());
    add_delta(offer, std::move(*folded));
  }
}

void History::forget_oldest(Offer& offer) const {
  const auto most = static_cast<size_t>(settings_.most_delta_bytes * static_cast<double>(blocks_.bytes()));
  size_t bytes = 0;
  for (const auto& [key, object] : offer.deltas_) bytes += object->bytes.size();
  while (bytes > most && !offer.deltas_.empty()) {
    bytes -= offer.deltas_.begin()->second->bytes.size();
    offer.deltas_.erase(offer.deltas_.begin());
  }
  const uint64_t oldest = offer.deltas_.empty() ? offer.newest_ : offer.deltas_.begin()->first.first;
  std::erase_if(offer.digests_, [&](const auto& digest) { return digest.first < oldest; });
}

}  // namespace tandem::weights_sync
