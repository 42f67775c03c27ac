// A run, or several that differ in some values, as a scheduler is told of it.
//
// Rendering is pure: the same job gives the same text. Nothing here starts a process or looks at a machine.
//
// Thread safety: none needed; values.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "base/file.h"

namespace tandem::launch {

// One of several runs of a job.
struct Variant {
  std::string name;                    // its folder below that of the job; empty: the job is one run
  std::vector<std::string> overrides;  // "run.seed=3"
};

// Resources of one run.
struct Resources {
  int cores = 0;
  uint64_t memory_bytes = 0;
};

struct Job {
  std::string name;                    // to the scheduler
  std::string program;                 // the tandem binary, as it is found where the run is started
  std::string config;                  // the YAML file
  fs::path working_dir;                // which relative paths of the config are relative to
  fs::path run_dir;                    // of the run, or the folder of the runs
  std::vector<std::string> overrides;  // of each run
  std::vector<Variant> variants;       // at least one
  Resources resources;
  int most_restarts = 0;  // of a run that was interrupted; crashes are bounded by kMostCrashes

  fs::path run_dir_of(const Variant& variant) const { return variant.name.empty() ? run_dir : run_dir / variant.name; }
};

// Starts after a signal that nobody asked for (out of memory, a crash), before the job is given up.
inline constexpr int kMostCrashes = 3;
// From the notice that a run must stop to the moment at which it is killed: what the supervisor waits for a checkpoint
// (150 s), and as much again for a slow disk.
inline constexpr int kNoticeSeconds = 300;

// The product of `seeds` ("1-4", "7"; empty: none) and all `sweeps` ("trainer.learning_rate=1e-5,1e-4"), the first
// varying slowest. Without either, one variant without a name. kInvalid names the option and what it may be; also for
// more than 1000 variants, and for two with one name.
Result<std::vector<Variant>> variants_of(const std::string& seeds, std::span<const std::string> sweeps);

// Seconds of a time as sbatch takes it: MINUTES, M:S, H:M:S, D-H, D-H:M, D-H:M:S.
Result<int64_t> seconds_of_time(std::string_view text);

// A word that a POSIX shell reads as `text`.
std::string quoted_for_shell(std::string_view text);
std::string joined_for_shell(std::span<const std::string> words);

// `text` with all but letters, digits, '-', '_' and '.' replaced by '-'; for names of folders and jobs.
std::string plain_name(std::string_view text);

}  // namespace tandem::launch
