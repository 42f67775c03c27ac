// metrics.jsonl of a run: a line for each step that was trained.
//
// A step is in the ledger before its line is here, so who is killed between leaves a step without a line; `missing`
// tells a successor. Of several lines of one step the last counts. Observing must not stop training: what cannot be
// written is logged.
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
  // What stands in `path` is kept, but for a last line that was torn.
  explicit MetricsLog(fs::path path);

  // Of the steps 1 to `last`, those without a line.
  std::vector<uint64_t> missing(uint64_t last) const;

  // A line with the key "step"; "format" is added.
  void append(const Json& line);

 private:
  fs::path path_;
  std::set<uint64_t> steps_;
};

}  // namespace tandem::rollout
