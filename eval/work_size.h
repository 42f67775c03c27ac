// Whether a developer would accept what a sample did: how much it changed, which new lints that has, which tests of the
// task it touched. Values, and one function that looks at trees and runs linters.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "base/json.h"
#include "envs/sandbox/sandbox.h"
#include "envs/tasks/task.h"

namespace tandem::eval {

struct WorkSize {
  uint64_t files = 0, binary_files = 0;  // new, gone or of other content; those of them that are no text
  uint64_t lines_added = 0, lines_removed = 0;
  uint64_t test_files = 0;  // of the task's tree, changed or gone
  bool at_least = false;    // the sample changed more than was counted
  // Nothing where no linter looked at any of the changed files.
  std::optional<uint64_t> new_lints;
  uint64_t linted_files = 0;
  bool lints_at_least = false;
  friend bool operator==(const WorkSize&, const WorkSize&) = default;
};

// Nothing where the trees do not say it: the task's own is more than can be collected. `task` is that of an episode
// that began with `begun` and left `left`. An error of a sandbox leaves new_lints without a value.
std::optional<WorkSize> work_size(const envs::Task& task, const envs::Collected& begun, const envs::Collected& left,
                                  envs::SandboxBackend& backend);

Json to_json(const std::optional<WorkSize>& size);  // null where there is none
// Null, and what is of a version that did not know it, is none. kCorrupt for what is no size of a work.
Result<std::optional<WorkSize>> work_size_from_json(const Json& json);

// Of several samples.
class WorkSizes {
 public:
  void add(const WorkSize& size) { sizes_.push_back(size); }
  size_t samples() const { return sizes_.size(); }
  // `samples`; `files`, `lines_added` and so on, and `new_lints`, each as {samples, mean, median}, null where no sample
  // has it; `at_least` and `lints_at_least`: the number of samples whose figures are lower bounds.
  Json summary() const;
  // "1 file, 4 lines added, 2 removed, 0 test files, 0 new lints (means 1.2, 5.5, 2, 0, 0.25) in 8 samples".
  std::string text() const;

 private:
  std::vector<double> values(uint64_t WorkSize::*figure) const;
  std::vector<double> lints() const;

  std::vector<WorkSize> sizes_;
};

// Of all samples, then of those that passed; as a line of a report.
std::string work_text(const WorkSizes& all, const WorkSizes& passed);

}  // namespace tandem::eval
