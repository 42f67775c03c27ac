#include "cli/package_options.h"

#include <fmt/format.h>

#include <algorithm>

#include "base/text.h"
#include "cli/command.h"
#include "envs/tools/shell_words.h"
#include "run/config.h"

namespace tandem::cli {
namespace {

constexpr std::string_view kPackageKeys = "env.packages.";
// What a shell takes as it is.
constexpr std::string_view kPlainLetters = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789_./:=,-";

Result<envs::PackageSettings> settings_of_config(const std::string& file) {
  run::RunConfig config;
  Schema schema = run::schema_of(config);
  schema.known_elsewhere(keys_of_all_configs());
  TRY(schema.read(file, {}));
  return config.env.packages;
}

// The keys that are named, over what is there.
Status set_keys(const std::vector<std::string>& pairs, envs::PackageSettings& settings) {
  if (pairs.empty()) return {};
  std::vector<std::string> overrides;
  for (const auto& pair : pairs)
    overrides.push_back((pair.starts_with(kPackageKeys) ? "" : std::string(kPackageKeys)) + pair);
  Schema schema;
  envs::add_package_fields(schema, settings);
  schema.known_elsewhere(keys_of_all_configs());
  if (Status status = schema.read({}, overrides); !status) return std::move(status).at("--packages-set");
  return {};
}

Status set_registries(const std::vector<std::string>& registries, envs::PackageSettings& settings) {
  for (const auto& one : registries) {
    const size_t equals = one.find('=');
    const auto name = one.substr(0, equals);
    auto* const target = name == "pypi"     ? &settings.pypi
                         : name == "npm"    ? &settings.npm
                         : name == "debian" ? &settings.debian
                                            : nullptr;
    if (target == nullptr)
      return Status::invalid(
                 fmt::format("\"{}\" is no registry{}", name, did_you_mean(name, {"pypi", "npm", "debian"})))
          .at("--packages");
    *target = equals == std::string::npos ? "auto" : one.substr(equals + 1);
  }
  return {};
}

}  // namespace

void add_package_options(CLI::App& command, PackageOptions& options) {
  command
      .add_option("--packages", options.registries,
                  "Open these registries of packages, of which files are kept on this machine: pypi, npm, debian, each "
                  "with =URL or, without, the one of this machine's pip, npm or apt. None by default")
      ->delimiter(',')
      ->allow_extra_args(false)
      ->type_name("NAME[=URL],...");
  command
      .add_option("--packages-config", options.config,
                  "A run's config: open what its env.packages says, where the other flags say nothing else")
      ->type_name("FILE");
  command
      .add_option("--packages-set", options.settings,
                  "Another key of env.packages: 'install=[pypi six==1.16.0]', before=2026-01-31, offline=true; may be "
                  "repeated")
      ->allow_extra_args(false)
      ->type_name("KEY=VALUE");
  command
      .add_option("--packages-lock", options.lock,
                  "A packages.lock that a run or --packages-record has written: nothing outside it can be installed")
      ->type_name("FILE");
  command
      .add_option("--packages-record", options.record,
                  "Write what is installed to this packages.lock, and go on with what it holds; pages lie beside it")
      ->type_name("FILE");
}

Result<std::shared_ptr<envs::PackageCache>> packages_of(const PackageOptions& options, double call_seconds) {
  envs::PackageSettings settings;
  if (!options.config.empty()) settings = TRY(settings_of_config(options.config));
  TRY(set_keys(options.settings, settings));
  TRY(set_registries(options.registries, settings));
  if (!options.lock.empty()) settings.lock = options.lock;
  if (const auto mistakes = envs::package_mistakes(settings, call_seconds); !mistakes.empty())
    return fail(Status::invalid(join(mistakes, "\n")).at("--packages"));
  if (!settings.any() && !options.record.empty())
    return fail(Status::invalid("nothing can be recorded: name a registry").at("--packages-record"));
  return envs::PackageCache::open({.settings = std::move(settings),
                                   .call_seconds = call_seconds,
                                   .record = options.record.empty() ? fs::path() : fs::absolute(options.record)});
}

std::string keys_of_run(const PackageOptions& options) {
  std::string words;
  const auto add = [&](const std::string& key, const std::string& value) {
    const auto word = std::string(kPackageKeys) + key + "=" + value;
    const bool plain = word.find_first_not_of(kPlainLetters) == std::string::npos;
    words += " " + (plain ? word : envs::shell_quoted(word));
  };
  for (const auto& one : options.registries) {
    const size_t equals = one.find('=');
    add(one.substr(0, equals), equals == std::string::npos ? "auto" : one.substr(equals + 1));
  }
  for (const auto& pair : options.settings) {
    const size_t equals = pair.find('=');
    const auto key = pair.substr(0, equals);
    add(key.starts_with(kPackageKeys) ? key.substr(kPackageKeys.size()) : key,
        pair.substr(std::min(equals, pair.size() - 1) + 1));
  }
  // What was recorded is what a run is to have, too.
  if (const auto& lock = options.lock.empty() ? options.record : options.lock; !lock.empty()) add("lock", lock);
  return words;
}

}  // namespace tandem::cli
