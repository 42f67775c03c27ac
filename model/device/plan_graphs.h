// Work of plans that come again and again, as graphs of a stream: by shape, the ones used last.
//
// A shape is captured when it comes for the third time: one that comes once is not worth it, and all memory that it
// takes was grown to its size by then. 64 graphs are kept, by last use, and as many more shapes remembered. Where
// memory of the stream was freed since, a graph may have addresses of it: its shape is captured again when it has come
// twice more.
//
// Thread safety: none; one executor's.
#pragma once

#include <spdlog/spdlog.h>

#include <compare>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <map>
#include <optional>

#include "kernels/device_stream.h"
#include "model/executor.h"

namespace tandem::model {

// The shape of a plan's work; all other inputs lie in its packet.
struct PlanShape {
  int rows = 0, draws = 0;
  bool drawn = false;             // whether the draws belong to the work
  bool routes = false;            // whether experts are recorded
  const void* weights = nullptr;  // whose memory is the stream's
  friend auto operator<=>(const PlanShape&, const PlanShape&) = default;
};

// `Kept`: what the code that puts work on the stream says of it, where its results lie.
template <typename Kept>
class PlanGraphs {
 public:
  // Has the stream do what `put` puts on it: operations and copies whose addresses and sizes are those of the shape.
  Result<Kept> run(kernels::DeviceStream& stream, const PlanShape& shape, const std::function<Result<Kept>()>& put) {
    if (!stream.uses_graphs()) return put();
    Entry& entry = entry_of(shape);
    if (entry.graph && !entry.graph->valid()) {
      entry = {.used = entry.used};
      --held_;
    }
    if (!entry.graph && (full_ || ++entry.plainly <= kPlainly)) return put();
    if (!entry.graph) {
      auto graph = stream.capture([&]() -> Status {
        entry.kept = TRY(put());
        return {};
      });
      if (!graph) {
        // No memory, or a driver that does not capture this: kernel by kernel it is the same. A lost device says so
        // there.
        spdlog::warn("model: no more graphs: {}", graph.error().message());
        full_ = true;
        return put();
      }
      entry.graph = TRY(std::move(graph));
      ++counters_.captured;
      if (++held_ > kMost) drop(true);
    }
    TRY(stream.launch(*entry.graph));
    ++counters_.launched;
    return *entry.kept;
  }
  const GraphCounters& counters() const { return counters_; }

 private:
  static constexpr size_t kMost = 64;
  static constexpr int kPlainly = 2;
  struct Entry {
    int plainly = 0;  // how often it came without a graph
    std::optional<kernels::DeviceGraph> graph;
    std::optional<Kept> kept;
    uint64_t used = 0;
  };

  Entry& entry_of(const PlanShape& shape) {
    if (entries_.size() - held_ >= kMost && !entries_.contains(shape)) drop(false);
    Entry& entry = entries_[shape];
    entry.used = ++uses_;
    return entry;
  }
  // The one that was not used for longest, of those with a graph or of those without.
  void drop(bool captured) {
    auto oldest = entries_.end();
    for (auto at = entries_.begin(); at != entries_.end(); ++at) {
      if (at->second.graph.has_value() != captured) continue;
      if (oldest == entries_.end() || at->second.used < oldest->second.used) oldest = at;
    }
    if (oldest == entries_.end()) return;
    entries_.erase(oldest);
    if (captured) --held_;
  }

  std::map<PlanShape, Entry> entries_;
  size_t held_ = 0;  // of the entries, those with a graph
  uint64_t uses_ = 0;
  bool full_ = false;  // another one could not be had
  GraphCounters counters_;
};

}  // namespace tandem::model
