// Serves weights of a trainer: tracks the receivers, decides what each fetches next, and returns the bytes.
//
// A version that somebody fetches whole stays until it is fetched, or nobody asked for a chunk of it for a while,
// though newer ones have come: then deltas follow. So a slow receiver does not begin again with every version, and
// nothing waits for it.
//
// Pure: no socket or clock. Thread safety: belongs to one thread.
#pragma once

#include <map>
#include <string>

#include "base/clock.h"
#include "weights_sync/history.h"

namespace tandem::weights_sync {

class Handout {
 public:
  // From now on this is offered.
  void offer(std::shared_ptr<const Offer> offer);
  const Offer& offered() const { return *offer_; }  // after the first

  void wants(const std::string& listener, const Wanted& wanted) { listeners_[listener] = wanted; }
  std::vector<std::string> listeners() const;
  // Nothing where it has the newest version.
  std::optional<Manifest> next_for(const std::string& listener) const;
  // A chunk of the object of these versions; nothing where there is no such object or chunk any more.
  std::optional<std::span<const std::byte>> chunk(uint64_t base, uint64_t version, uint32_t index, Time now);

 private:
  static constexpr size_t kMostKept = 2;
  static constexpr auto kForgotten = std::chrono::seconds(10);
  struct Kept {
    std::shared_ptr<const Object> object;
    Time asked{};
  };
  void forget(Time now);

  std::shared_ptr<const Offer> offer_;
  std::map<std::string, Wanted> listeners_;
  std::map<uint64_t, Kept> fetched_;  // whole, by version
};

}  // namespace tandem::weights_sync
