#include "run/packages.h"

namespace tandem::run {
namespace {

Result<std::shared_ptr<envs::PackageCache>> open_packages(const RunConfig& config, const fs::path& record) {
  if (!config.env.packages.any()) return std::shared_ptr<envs::PackageCache>();
  const auto profile = TRY(profile_of(config));
  return envs::PackageCache::open(
      {.settings = config.env.packages, .call_seconds = profile.call_seconds, .record = record});
}

}  // namespace

Result<std::shared_ptr<envs::PackageCache>> packages_of_run(const RunConfig& config, const fs::path& run_dir) {
  return open_packages(config, run_dir / envs::kLockName);
}

Result<std::string> packages_told(const RunConfig& config) {
  const auto packages = TRY(open_packages(config, {}));
  return packages ? packages->told() : "";
}

Result<Json> probe_packages(const RunConfig& config) {
  const auto packages = TRY(open_packages(config, {}));
  if (!packages) return Json();
  Json all = Json::array();
  for (const auto& [registry, problem] : packages->reachable())
    all.push_back({{"registry", registry}, {"problem", problem}});
  return all;
}

}  // namespace tandem::run
