#include "envs/server/hosted_runs.h"

namespace tandem::envs {

Result<std::shared_ptr<const RunTerms>> HostedRun::terms(const ServerSettings& settings, uint64_t run,
                                                         const std::string& run_dir) {
  std::lock_guard lock(mutex_);
  if (!terms_) {
    terms_ = std::make_shared<const RunTerms>(settings.open_run ? TRY(settings.open_run(run, run_dir))
                                                                : RunTerms{.name = "",
                                                                           .make_task = settings.make_task,
                                                                           .episode = settings.episode,
                                                                           .rewards = settings.rewards,
                                                                           .foreign = settings.foreign});
  }
  return terms_;
}

Result<std::shared_ptr<HostedRun>> HostedRuns::of(uint64_t number, const std::function<std::set<uint64_t>()>& busy) {
  if (const auto known = runs_.find(number); known != runs_.end()) return known->second;
  if (runs_.size() >= kMost) {
    const std::set<uint64_t> kept = busy();
    std::erase_if(runs_, [&](const auto& entry) { return !kept.contains(entry.first); });
  }
  if (runs_.size() >= kMost) return fail(Status::exhausted("the environment server has too many runs"));
  return runs_.emplace(number, std::make_shared<HostedRun>()).first->second;
}

}  // namespace tandem::envs
