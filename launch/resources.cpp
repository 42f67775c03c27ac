#include "launch/resources.h"

#include <fmt/format.h>

#include <algorithm>

namespace tandem::launch {
namespace {

constexpr uint64_t kMiB = uint64_t{1} << 20;
constexpr uint64_t kProcessBytes = 128 * kMiB, kCallBytes = 256 * kMiB, kRoundTo = 256 * kMiB;

}  // namespace

Resources resources_of(const run::RunConfig& config, const Json& memory, int cores) {
  const auto workers = static_cast<uint64_t>(config.rollout.workers);
  const auto relays = static_cast<uint64_t>(config.run.relays);
  uint64_t bytes = 0;
  for (const auto& [role, parts] : memory.items()) {
    uint64_t sum = 0;
    for (const auto& [what, part] : parts.items()) sum += part.get<uint64_t>();
    bytes += role.starts_with("rollout") ? sum * workers : role.starts_with("relay") ? sum * relays : sum;
  }
  bytes += bytes / 10;
  const uint64_t processes = 4 + workers + relays;  // supervisor, coordinator, trainer, env
  bytes += processes * kProcessBytes + static_cast<uint64_t>(config.env.threads) * kCallBytes +
           static_cast<uint64_t>(config.env.read_cache_mb + config.env.beginnings_mb) * kMiB;
  if (cores == 0) cores = std::max(config.trainer.threads, config.rollout.workers * config.rollout.threads);
  return {.cores = cores > 0 ? cores : kDefaultCores, .memory_bytes = (bytes + kRoundTo - 1) / kRoundTo * kRoundTo};
}

std::vector<std::string> thread_overrides(const run::RunConfig& config, int cores, int nodes) {
  std::vector<std::string> overrides;
  if (config.trainer.threads == 0) overrides.push_back(fmt::format("trainer.threads={}", cores));
  if (config.rollout.threads == 0) {
    const int of_a_node = (config.rollout.workers + nodes - 1) / nodes;
    overrides.push_back(fmt::format("rollout.threads={}", std::max(1, cores / std::max(1, of_a_node))));
  }
  return overrides;
}

}  // namespace tandem::launch
