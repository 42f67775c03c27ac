// Runs below a folder, each as one entry: what it is, how far it came, what it cost.
//
// Reading changes nothing and takes no lock: it works on runs that are on, that are over, and that were killed. What
// cannot be read of a run is said in its entry; the others are not affected. Of a run without a summary whose ledger
// has more than 64 MiB, the books are not read: it has no held-out success and no cores in its entry.
//
// Thread safety: none needed; values.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "base/file.h"
#include "base/json.h"
#include "dashboard/run_files.h"
#include "dashboard/statistics.h"

namespace tandem::archive {

enum class State : uint8_t {
  kOn,           // starting, running or stopping
  kDone,         // came to its last step
  kInterrupted,  // stopped by a signal, with a checkpoint
  kFailed,       // ended by itself before its last step
  kKilled,       // ended without a word
  kEmpty,        // ended without a step, and without a word on why
  kCopy,         // a standby keeps it of a run that is elsewhere
};
std::string_view to_string(State state);

struct RunEntry {
  fs::path dir;
  State state = State::kEmpty;
  std::string model;                           // model.path
  uint64_t step = 0, steps = 0;                // trained; planned
  std::optional<dashboard::Estimate> heldout;  // sampled success after training, or the last one before that
  std::optional<double> training_success;      // mean reward of the last step's episodes
  std::optional<double> began, ended;          // seconds since 1970; of a run that is on, `ended` is its last sign
  std::optional<double> wall_seconds;          // of all attempts
  std::optional<double> core_seconds;          // of the run's processes; what tools use in sandboxes is not counted
  std::optional<double> gpu_seconds;           // wall_seconds for each GPU that the run holds
  uint64_t bytes = 0;                          // of all files in its directory
  std::string problem;                         // why something of the above is missing; empty where all was read
};

// Directories of runs in `folder` and below, to a depth of four, in order of their paths; `folder` itself where it is
// one. Links are not followed. kInvalid where `folder` is no folder, kExhausted where it has more than 100,000 folders.
Result<std::vector<fs::path>> find_runs(const fs::path& folder);

// The run in `run_dir`, a directory of find_runs().
RunEntry read_entry(const fs::path& run_dir);

// The entry of what was read already, and its summary.
RunEntry entry_of(const dashboard::RunFiles& run, const Json& summary);

Json to_json(const RunEntry& entry, double now);

}  // namespace tandem::archive
