#include "rollout/books/measured_checkpoints.h"

#include <fmt/format.h>
#include <spdlog/spdlog.h>

namespace tandem::rollout {
namespace {

void link(const fs::path& folder, const std::string& name, const std::optional<uint64_t>& step) {
  std::error_code error;
  if (!step) {
    fs::remove(folder / name, error);
    return;
  }
  const std::string target = fmt::format("step_{}", *step);
  if (fs::read_symlink(folder / name, error) == target) return;
  const fs::path aside = folder / fmt::format(".{}.tmp", name);
  fs::create_directories(folder, error);
  fs::remove(aside, error);
  fs::create_symlink(target, aside, error);
  if (!error) fs::rename(aside, folder / name, error);
  if (error) spdlog::warn("{} cannot be linked: {}", (folder / name).string(), error.message());
}

}  // namespace

std::optional<uint64_t> best_step(const Ledger& ledger, const std::function<bool(uint64_t)>& is_there) {
  std::optional<uint64_t> best;
  double most = 0;
  for (const auto& [step, measured] : ledger.measurements()) {
    if (!measured.is_complete || measured.samples == 0 || !is_there(step)) continue;
    if (best && measured.pass_rate() < most) continue;
    best = step;
    most = measured.pass_rate();
  }
  return best;
}

void link_measured_checkpoints(const fs::path& run_dir, const Ledger& ledger) {
  if (ledger.plan().heldout_every == 0) return;
  const fs::path folder = run_dir / "checkpoints";
  const uint64_t measuring = ledger.measuring();
  const auto best = best_step(ledger, [&](uint64_t step) {
    std::error_code error;
    return fs::exists(folder / fmt::format("step_{}", step) / "learner.json", error);
  });
  // The best first: between the two nothing is without a link that needs one.
  if (best) link(folder, "best", best);
  link(folder, "measuring", measuring > 0 ? std::optional(measuring) : std::nullopt);
}

Json newest_measurement(const Ledger& ledger) {
  Json newest;
  for (const auto& [step, measured] : ledger.measurements()) {
    if (!measured.is_complete || measured.samples == 0) continue;
    newest = {{"step", step},
              {"success", measured.pass_rate()},
              {"samples", measured.samples},
              {"greedy", measured.greedy_samples > 0
                             ? Json(static_cast<double>(measured.greedy_passed) / measured.greedy_samples)
                             : Json()},
              {"last_version", measured.last_version}};
  }
  return newest;
}

}  // namespace tandem::rollout
