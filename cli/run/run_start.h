// Plans a start of `tandem run`: which run, with which config, and whether this machine can do it. Nothing is written
// until all of it is known.
//
// Thread safety: none needed.
#pragma once

#include <optional>
#include <set>
#include <string>
#include <vector>

#include "base/config.h"
#include "base/folder_lock.h"
#include "base/host_memory.h"
#include "envs/tasks/task_set.h"
#include "run/config.h"
#include "run/disk.h"
#include "run/memory.h"
#include "run/resume.h"
#include "run/topology.h"

namespace tandem::cli {

struct RunOptions {
  std::string config;
  std::vector<std::string> overrides;
  std::string run_dir;
  std::string take_over;  // a copy of a run, which goes on in it
  bool accept_loss = false;
  bool resume = false, resume_or_start = false, dry_run = false, json = false;
};

// The schema points into the config, so it is neither copied nor moved.
struct RunStart {
  RunStart() = default;
  RunStart(const RunStart&) = delete;
  RunStart& operator=(const RunStart&) = delete;

  run::RunConfig config;
  Schema schema = schema_of(config);

  // By find_run.
  std::string stem;  // of the config's file
  fs::path run_dir;
  bool has_new_name = false;        // `run_dir` is a name of our own, which nobody else gets once it is made
  bool exists = false;              // there is a run that this one goes on with
  std::optional<FolderLock> claim;  // of the run directory, where it is there
  std::set<std::string> given;      // keys that somebody has set
  std::vector<run::ConfigChange> changes;
  run::RunConfig recorded;  // as the run had it until now

  // By check_start.
  run::RunConfig checked;  // `config`, with models where the run has copies of them
  std::optional<envs::TaskSet> tasks;
  std::optional<fs::path> encoder;  // of searches
  bool is_tiny = false;             // the model is made on the spot
  Json memory = Json::object();     // by role, then by what takes it; empty for a tiny model
  run::Topology topology;
  run::MemoryNeed memory_needed;  // on this machine
  MemoryRoom memory_here;
  std::string memory_lack;  // empty: there is enough
};

// Reads the config, finds and claims the run directory, and takes what a run that goes on has recorded. kInvalid.
Status find_run(const RunOptions& options, RunStart& start);

// Whether the run that goes on is done, as its log says; then nothing may have changed. Raises run.steps to the log's.
Result<bool> is_done(RunStart& start);

// Checks what the config names: models, tasks, losses, devices, keys. Warns of too little memory. kInvalid, kUnfit.
Status check_start(RunStart& start);

// Expected growth of a run directory with the model in the folder `model`.
Result<run::DiskGrowth> growth_of(const run::RunConfig& config, const fs::path& model);

}  // namespace tandem::cli
