// metrics.jsonl of a run: a line for each step that was trained.
//
// A step enters the ledger before its line is written. A process killed between the two leaves a step without a line;
// missing() names it to the next one. Of several lines of one step the last counts. A failed write is logged and does
// not stop training.
//
// Thread safety: none.
#pragma once

#include <cstdint>
#include <set>
#include <vector>

#include "base/file.h"
#include "base/json.h"

namespace tandem::rollout {

inline constexpr int kMetricsFormat = 2;  // of a line, by its key "format"; the same as 1, which did not say so

class MetricsLog {
 public:
  // Keeps the lines of `path`, except for a torn last one.
  explicit MetricsLog(fs::path path);

  // Returns the steps from 1 to `last` that have no line.
  std::vector<uint64_t> missing(uint64_t last) const;

  // A line with the key "step"; "format" is added.
  void append(const Json& line);
  // The size of the file.
  uint64_t bytes() const;

 private:
  fs::path path_;
  std::set<uint64_t> steps_;
};

}  // namespace tandem::rollout
