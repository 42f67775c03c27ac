#include "run/config_history.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <iterator>

#include "base/text.h"
#include "rollout/books/ledger_log.h"
#include "run/resume.h"

namespace tandem::run {
namespace {

// Keys of trainer.* and algorithm.* that change no bit.
constexpr std::array<std::string_view, 21> kWithoutEffect = {"trainer.audit_every",
                                                             "trainer.checkpoint_every",
                                                             "trainer.device",
                                                             "trainer.dynamic_sampling",
                                                             "trainer.keep_checkpoints",
                                                             "trainer.max_lag",
                                                             "trainer.on_lag",
                                                             "trainer.parallel",
                                                             "trainer.ranks",
                                                             "trainer.weight_deltas",
                                                             "trainer.weight_store",
                                                             "trainer.weight_store_endpoint",
                                                             "trainer.weight_store_region",
                                                             "trainer.weight_store_seconds",
                                                             "trainer.threads",
                                                             "algorithm.teacher.url",
                                                             "algorithm.teacher.key_env",
                                                             "algorithm.teacher.key_file",
                                                             "algorithm.teacher.seconds",
                                                             "algorithm.teacher.retries",
                                                             "algorithm.teacher.concurrency"};

bool trains(const std::string& key) {
  if (std::ranges::find(kWithoutEffect, key) != kWithoutEffect.end()) return false;
  return key.starts_with("trainer.") || key.starts_with("algorithm.") || key == "run.steps" ||
         key == "rollout.temperature";
}

}  // namespace

Result<ConfigHistory> ConfigHistory::read(const fs::path& run_dir, const RunConfig& recorded) {
  return ConfigHistory(recorded, TRY(rollout::read_configs(run_dir)));
}

const Json* ConfigHistory::values_of(uint64_t step) const {
  const auto next = values_.upper_bound(step);
  return next == values_.begin() ? nullptr : &std::prev(next)->second;
}

Result<RunConfig> ConfigHistory::of_step(uint64_t step) const {
  RunConfig config = recorded_;
  const Json* const values = values_of(step);
  if (values == nullptr) return config;
  Schema schema = schema_of(config);
  Json sections = Json::object();
  for (const Field& field : schema.fields()) {
    const auto found = values->find(field.path);
    if (found == values->end()) continue;
    Json* place = &sections;
    for (const auto part : split(field.path, '.')) place = &(*place)[std::string(part)];
    *place = *found;
  }
  TRY(schema.apply_resolved(sections));
  return config;
}

std::string ConfigHistory::difference(uint64_t step, uint64_t other) const {
  const Json *const first = values_of(step), *const second = values_of(other);
  if (first == nullptr || second == nullptr || first == second) return "";
  std::string words;
  for (const auto& [key, value] : first->items()) {
    const Json later = second->value(key, Json());
    if (!trains(key) || value == later) continue;
    words += fmt::format("{}{} was {} at step {} and {} at step {}", words.empty() ? "" : ", ", key, dump_json(value),
                         step, dump_json(later), other);
  }
  return words;
}

}  // namespace tandem::run
