#include "run/standby.h"

#include "run/rewards.h"
#include "run/search.h"
#include "trainer/learn/demonstrations.h"

namespace tandem::run {
namespace {

std::vector<std::string> paths_of(const wire::Peer& self) {
  switch (self.role) {
    case wire::Role::kSupervisor:
      return {"config.yaml",
              "config.resolved.json",
              "tasks.json",
              "origin.json",
              "profile.yaml",
              "model",
              "teacher",
              "tasks",
              "encoder",
              "harness.yaml",
              kMovedFile,
              kVectorsFile,
              kRewardFolder,
              "packages.lock",
              trainer::kDemonstrationsFile};
    case wire::Role::kCoordinator:
      return {"ledger/events.log", "metrics.jsonl"};
    case wire::Role::kTrainer:
      return {"trajectories", "checkpoints", "export"};
    default:
      return {};
  }
}

}  // namespace

Result<std::unique_ptr<standby::Replicator>> replicator_of(const RunConfig& config, const RunLayout& layout,
                                                           const fs::path& run_dir, const wire::Peer& self,
                                                           uint64_t start) {
  auto paths = paths_of(self);
  if (config.run.standby.empty() || paths.empty() || self.rank != 0) return std::unique_ptr<standby::Replicator>();
  auto secret = TRY(wire::Secret::read(config.run.key));
  return std::make_unique<standby::Replicator>(
      standby::ReplicatorSettings{.run_dir = fs::absolute(run_dir).lexically_normal(),
                                  .run = name_of_run(run_dir),
                                  .run_id = layout.run_id(),
                                  .epoch = layout.epoch(),
                                  .stream = to_string(self),
                                  .start = start,
                                  .paths = std::move(paths),
                                  .address = config.run.standby,
                                  .secret = std::move(secret),
                                  .goes_on = config.run.standby_lost == "go_on",
                                  .keeps_news = self.role == wire::Role::kSupervisor});
}

}  // namespace tandem::run
