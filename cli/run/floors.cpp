#include "cli/run/floors.h"

namespace tandem::cli {

Json play_floors(std::span<const envs::TaskSpec> specs, const envs::MakeTask& make_task, envs::SandboxBackend& backend,
                 const std::atomic<bool>& cancelled) {
  Json rates = Json::object();
  for (const envs::Floor floor : envs::floors()) {
    double sum = 0;
    int count = 0;
    for (const auto& spec : specs) {
      if (cancelled) break;
      const auto made = make_task(spec);
      if (!made) continue;
      const auto grade = envs::play_floor(floor, *made, backend);
      if (!grade) continue;
      sum += grade->reward;
      ++count;
    }
    if (count > 0) rates[std::string(envs::to_string(floor))] = sum / count;
  }
  return rates;
}

}  // namespace tandem::cli
