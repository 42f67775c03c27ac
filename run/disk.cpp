#include "run/disk.h"

#include <fmt/format.h>
#include <sys/statvfs.h>

#include <algorithm>
#include <cerrno>

#include "base/byte_size.h"
#include "base/text.h"
#include "model/parameters.h"
#include "model/routes.h"
#include "trainer/learn/low_rank.h"
#include "trainer/learn/optimizer.h"

namespace tandem::run {
namespace {

// Bytes of a trajectory: a token's id, whether it was sampled, its logprob and version; and the record around them.
constexpr uint64_t kTokenBytes = 17, kTrajectoryBytes = 256;
// Bytes of an episode in the ledger, and of a step in metrics.jsonl and logs: tiny runs had 512 bytes and 3 KB.
constexpr uint64_t kEpisodeRecord = 600, kStepRecord = 4'000;
constexpr uint64_t kSlack = 1 << 20;  // report, summary, status

}  // namespace

uint64_t DiskGrowth::reserve() const { return 2 * checkpoint + exported + trajectories_at_most + records + kSlack; }

Result<DiskGrowth> disk_growth_of(const RunConfig& config, const model::ModelConfig& model) {
  const auto layout = TRY(model::parameter_layout(model));
  const auto optimizer = TRY(optimizer_of(config));
  DiskGrowth growth;
  if (optimizer.low_rank.rank > 0) {
    const auto factors = TRY(trainer::LowRank::plan(layout, optimizer.low_rank)).elements();
    growth.checkpoint = factors * sizeof(float) + TRY(trainer::Optimizer::bytes_of(factors, optimizer));
    growth.exported = factors * sizeof(float);
  } else {
    growth.checkpoint = layout.elements * sizeof(float) + TRY(trainer::Optimizer::bytes_of(layout, optimizer));
  }
  growth.exported += layout.elements * sizeof(kernels::bf16);
  growth.kept = TRY(kept_checkpoints(config));
  const auto& t = config.trainer;
  // A token's route, and whether it is known.
  const uint64_t route_bytes = t.replay_routes ? 1 + model::route_shape(model).row_bytes() : 0;
  // About what zstd leaves of a hundred kept tokens; most distributions are cut to fewer.
  const uint64_t kept_bytes = truncation_of(config).any() ? 100 : 0;
  const uint64_t teacher_bytes = config.algorithm.teacher.is_remote() ? sizeof(float) : 0;
  const uint64_t episode =
      static_cast<uint64_t>(config.rollout.max_tokens) * (kTokenBytes + route_bytes + kept_bytes + teacher_bytes) +
      kTrajectoryBytes;
  const auto of_step = static_cast<uint64_t>(t.groups_per_step) * static_cast<uint64_t>(t.group_size);
  growth.trajectories_at_most = of_step * episode;
  growth.records = of_step * kEpisodeRecord + kStepRecord;
  const uint64_t measured =
      2 * static_cast<uint64_t>(config.tasks.heldout) * (static_cast<uint64_t>(config.tasks.heldout_samples) + 1);
  growth.before_steps_at_most = measured * (episode + kEpisodeRecord);
  return growth;
}

Json to_json(const DiskGrowth& growth) {
  return {{"checkpoint", growth.checkpoint},
          {"kept_checkpoints", growth.kept == SIZE_MAX ? Json("all") : Json(growth.kept)},
          {"export", growth.exported},
          {"trajectories_a_step_at_most", growth.trajectories_at_most},
          {"records_a_step", growth.records},
          {"heldout_at_most", growth.before_steps_at_most},
          {"kept_free", growth.reserve()}};
}

std::vector<std::string> describe(const DiskGrowth& growth, const RunConfig& config) {
  const std::string kept =
      growth.kept == SIZE_MAX ? "all are kept" : fmt::format("{} kept, and one more while it is written", growth.kept);
  return {fmt::format("checkpoints {} each, {}; export {}", format_bytes(growth.checkpoint), kept,
                      format_bytes(growth.exported)),
          fmt::format("trajectories up to {} a step, ledger and metrics about {} a step; held-out tasks up to {}",
                      format_bytes(growth.trajectories_at_most), format_bytes(growth.records),
                      format_bytes(growth.before_steps_at_most)),
          config.run.disk_limit.empty()
              ? fmt::format("no limit (run.disk_limit); the run ends in time where the disk has less than {} free",
                            format_bytes(growth.reserve()))
              : fmt::format("run.disk_limit {}; {} of it are kept free to end with", config.run.disk_limit,
                            format_bytes(growth.reserve()))};
}

Result<DiskUse> disk_use_of(const fs::path& run_dir) {
  struct statvfs disk {};
  if (::statvfs(run_dir.c_str(), &disk) != 0)
    return fail(Status::unavailable(Status::from_errno(run_dir.string(), errno).to_string()));
  return DiskUse{.used = bytes_below(run_dir), .free = static_cast<uint64_t>(disk.f_bavail) * disk.f_frsize};
}

Result<uint64_t> disk_limit_of(const RunConfig& config) {
  if (config.run.disk_limit.empty()) return 0;
  auto bytes = bytes_from(config.run.disk_limit);
  if (!bytes) return fail(Status(bytes.error()).at("run.disk_limit"));
  return *bytes;
}

Status check_room(const DiskUse& use, uint64_t limit, uint64_t reserve) {
  constexpr const char* kHow =
      "raise run.disk_limit, or make room (`tandem runs prune`, a smaller trainer.keep_checkpoints), and go on by "
      "--resume";
  if (limit > 0 && use.used + reserve > limit) {
    return Status::invalid(fmt::format("the run has {} on disk of a run.disk_limit of {}, and may need {} more to end "
                                       "with a checkpoint",
                                       format_bytes(use.used), format_bytes(limit), format_bytes(reserve)))
        .hint(kHow);
  }
  if (use.free < reserve) {
    return Status::unfit(
               fmt::format("the disk of the run has {} free, and the run may need {} to end with a checkpoint",
                           format_bytes(use.free), format_bytes(reserve)))
        .hint("make room (`tandem runs prune`, a smaller trainer.keep_checkpoints), and go on by --resume");
  }
  return {};
}

Status DiskWatch::room() const { return check_room(TRY(disk_use_of(run_dir_)), limit_, reserve_); }

bool DiskWatch::has_run_out() {
  const Time start = clock_.now();
  if (!why_.ok() || start < next_) return false;
  // That the disk cannot be asked ends no run.
  if (Status found = room(); found.code() == Code::kInvalid || found.code() == Code::kUnfit) why_ = std::move(found);
  next_ = clock_.now() + std::min<Duration>(50 * (clock_.now() - start), std::chrono::minutes(1));
  return !why_.ok();
}

}  // namespace tandem::run
