#include "chaos/recount.h"

#include <fmt/format.h>

#include <map>
#include <set>

#include "dashboard/episodes.h"
#include "rollout/books/trajectory.h"
#include "run/resume.h"

namespace tandem::chaos {

Result<Recount> recount(const fs::path& run_dir) {
  const auto plan_of_config = [&]() -> Result<rollout::RunPlan> {
    return run::plan_of(TRY(run::read_resolved(run_dir)), run_dir);
  };
  const auto store = TRY(rollout::TrajectoryStore::open_to_read(run_dir / "trajectories"));
  Recount result;
  std::set<uint64_t> seen;
  std::map<uint64_t, uint64_t> by_step;
  uint64_t trained = 0, dropped = 0, open = 0;
  const auto lost = [&](std::string finding) {
    ++result.lost;
    result.findings.push_back(std::move(finding));
  };
  const auto doubled = [&](std::string finding) {
    ++result.duplicated;
    result.findings.push_back(std::move(finding));
  };
  const auto ledger = TRY(dashboard::visit_episodes(
      run_dir, plan_of_config, dashboard::WithTokens::kNo, [&](const Json& episode) -> Status {
        const auto id = episode["episode"].get<uint64_t>();
        const auto attempt = episode["attempt"].get<uint32_t>();
        if (!seen.insert(id).second) doubled(fmt::format("episode {} is in the books twice", id));
        if (!episode["trained_step"].is_null()) {
          ++trained;
          ++by_step[episode["trained_step"].get<uint64_t>()];
          if (!store.contains({id, attempt}))
            lost(fmt::format("episode {}, attempt {}, was trained, and its trajectory is not there", id, attempt));
        } else if (episode["dropped"].is_string()) {
          ++dropped;
          if (episode["dropped"] == "trajectory_lost")
            lost(fmt::format("episode {} was dropped: its trajectory was gone", id));
        } else {
          ++open;
        }
        return {};
      }));
  const auto books = ledger.books();
  result.admitted = books.admitted;
  result.trained = books.trained;
  result.dropped = books.dropped_total();
  result.in_flight = books.in_flight;
  const auto compare = [&](const char* what, uint64_t booked, uint64_t counted) {
    for (uint64_t i = counted; i < booked; ++i) lost(fmt::format("{}: booked {}, counted {}", what, booked, counted));
    for (uint64_t i = booked; i < counted; ++i)
      doubled(fmt::format("{}: booked {}, counted {}", what, booked, counted));
  };
  compare("admitted episodes", books.admitted, seen.size());
  compare("trained episodes", books.trained, trained);
  compare("dropped episodes", books.dropped_total(), dropped);
  compare("episodes in flight", books.in_flight, open);
  // No batch has more episodes than it may; fewer are those of groups that were dropped as a whole.
  const auto most = static_cast<uint64_t>(ledger.plan().groups_per_step) * ledger.plan().group_size;
  for (const auto& [step, count] : by_step) {
    for (uint64_t i = most; i < count; ++i)
      doubled(fmt::format("step {} trained {} episodes of {}", step, count, most));
  }
  return result;
}

Json to_json(const Recount& r) {
  return {{"admitted", r.admitted}, {"trained", r.trained}, {"dropped", r.dropped}, {"in_flight", r.in_flight}};
}

}  // namespace tandem::chaos
