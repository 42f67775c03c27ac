// Metrics of a server in the text format of Prometheus.
//
// vLLM's names stand beside ours, so that its boards and autoscalers work. Thread safety: none; the server's loop owns
// it.
#pragma once

#include <array>
#include <cstdint>
#include <map>
#include <set>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "base/clock.h"
#include "rollout/engine/engine.h"

namespace tandem::serve {

class Histogram {
 public:
  void observe(double seconds);
  static constexpr std::array kBounds = {0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25,
                                         0.5,   1.0,    2.5,   5.0,  10.0,  30.0, 60., 300.};
  const std::array<uint64_t, kBounds.size() + 1>& counts() const { return counts_; }
  double sum() const { return sum_; }
  uint64_t count() const { return count_; }

 private:
  std::array<uint64_t, kBounds.size() + 1> counts_{};
  double sum_ = 0;
  uint64_t count_ = 0;
};

// The metrics of one model.
struct ModelMetrics {
  uint64_t prompt_tokens = 0, cached_tokens = 0, generation_tokens = 0;
  std::map<std::string, uint64_t> finished;  // answers, by finish reason; "abort" where the client went away
  uint64_t refused_full = 0;                 // requests that found the queue full
  uint64_t streams_taken_over = 0;           // that a candidate had begun and lost
  Histogram queue, time_to_first_token, inter_token, whole;  // seconds
};

struct ModelGauges {
  std::string name, version;  // version: empty, or what it is beside the one that is served
  int running = 0, waiting = 0;
  int slots = 0;
  std::set<std::string> running_adapters, waiting_adapters;  // that requests name
  const ModelMetrics* metrics = nullptr;
  rollout::EngineCounters engine;
};

// The gauges of one adapter. Its name needs no escapes.
struct AdapterGauges {
  std::string model, name;
  int rank = 0;
  size_t bytes = 0;                          // of the factors
  uint64_t requests = 0, answer_tokens = 0;  // of those that have ended, since it was loaded
};

// `most_adapters`: that may be loaded at once; `now`: Unix seconds.
std::string prometheus_text(std::span<const ModelGauges> models, std::span<const AdapterGauges> adapters,
                            int most_adapters, double now, const std::map<int, uint64_t>& answers_by_status);

}  // namespace tandem::serve
