// Disk space of a run: how much it will write, and when it must stop.
//
// A run ends by itself while there is room for the checkpoint that it goes on from: before its directory has
// run.disk_limit bytes, or the disk is full.
//
// Thread safety: none needed; values.
#pragma once

#include <optional>

#include "base/clock.h"
#include "base/file.h"
#include "base/json.h"
#include "model/config.h"
#include "run/config.h"

namespace tandem::run {

struct DiskGrowth {
  uint64_t checkpoint = 0;            // each; files' heads of a few KB are left out
  uint64_t exported = 0;              // weights of export/
  uint64_t kept = 0;                  // checkpoints; one more while one is written. UINT64_MAX: all
  uint64_t trajectories_at_most = 0;  // of a step, where each episode has rollout.max_tokens
  uint64_t records = 0;               // of a step, about: ledger, metrics, logs
  uint64_t before_steps_at_most = 0;  // what held-out tasks take before the first step and after the last
  // Bytes reserved for the end: the last checkpoint, one that is being written, the export and a step.
  uint64_t reserve() const;
};
// kInvalid as the config's own checks have it.
Result<DiskGrowth> disk_growth_of(const RunConfig& config, const model::ModelConfig& model);

Json to_json(const DiskGrowth& growth);
// One line for people per item.
std::vector<std::string> describe(const DiskGrowth& growth, const RunConfig& config);

struct DiskUse {
  uint64_t used = 0;  // bytes in the run directory
  uint64_t free = 0;  // bytes that this user may still write on its disk
};
// kUnavailable where the disk cannot be asked.
Result<DiskUse> disk_use_of(const fs::path& run_dir);

// run.disk_limit in bytes; 0: none. kInvalid where it is no number of bytes.
Result<uint64_t> disk_limit_of(const RunConfig& config);

// Why a run must end now: kInvalid for the limit, kUnfit for the disk, both with a hint; OK while it may go on. `limit`
// 0: none.
Status check_room(const DiskUse& use, uint64_t limit, uint64_t reserve);

// Watches the free space of a run, less often where a check takes long. The clock must outlive it.
class DiskWatch {
 public:
  DiskWatch(fs::path run_dir, uint64_t limit, uint64_t reserve, const Clock& clock)
      : run_dir_(std::move(run_dir)), limit_(limit), reserve_(reserve), clock_(clock), next_(clock.now()) {}

  // check_room() of the current use.
  Status room() const;
  // True once: when a check finds for the first time that there is no room.
  bool has_run_out();
  const Status& why() const { return why_; }  // OK while there is room

 private:
  const fs::path run_dir_;
  const uint64_t limit_, reserve_;
  const Clock& clock_;
  Time next_;
  Status why_;
};

}  // namespace tandem::run
