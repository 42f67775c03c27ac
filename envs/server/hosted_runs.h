// The runs of a host of environments, and the terms of each.
//
// Thread safety: HostedRuns belongs to one thread; `HostedRun::terms` may be called from any.
#pragma once

#include <map>
#include <memory>
#include <mutex>
#include <set>
#include <string>

#include "envs/server/server.h"

namespace tandem::envs {

class HostedRun {
 public:
  // Opened when they are first needed; what went wrong is tried again.
  Result<std::shared_ptr<const RunTerms>> terms(const ServerSettings& settings, uint64_t run,
                                                const std::string& run_dir);

 private:
  std::mutex mutex_;
  std::shared_ptr<const RunTerms> terms_;
};

class HostedRuns {
 public:
  // The run of this number, new where it is not known. kExhausted where there are kMost, all of them `busy`; else one
  // without episodes is forgotten for another.
  Result<std::shared_ptr<HostedRun>> of(uint64_t number, const std::function<std::set<uint64_t>()>& busy);
  void forget(uint64_t number) { runs_.erase(number); }

  static constexpr size_t kMost = 256;

 private:
  std::map<uint64_t, std::shared_ptr<HostedRun>> runs_;
};

}  // namespace tandem::envs
