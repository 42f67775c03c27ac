#include "envs/episodes/installed_backend.h"

#include "envs/sandbox/fields.h"

namespace tandem::envs {
namespace {

constexpr double kInstallSeconds = 110;  // of one command; others wait for it for a little longer

// Opens the registries to sandboxes that begin empty: they are to be installed into.
class OpenToMakers final : public SandboxBackend {
 public:
  OpenToMakers(SandboxBackend& backend, std::shared_ptr<PackageService> packages)
      : backend_(backend), packages_(std::move(packages)) {}
  Result<std::unique_ptr<Sandbox>> create(const SandboxSpec& wanted) override {
    SandboxSpec spec = wanted;
    if (spec.begins_on.empty()) spec.packages = packages_;
    return backend_.create(spec);
  }

 private:
  SandboxBackend& backend_;
  const std::shared_ptr<PackageService> packages_;
};

ContentDigest key_of_installed(const PackageService& packages, const std::vector<std::string>& commands,
                               const SandboxSpec& spec) {
  std::string bytes = "installed";
  put_text(bytes, packages.identity());
  for (const auto& command : commands) put_text(bytes, command);
  put_files(bytes, spec.links);
  put_text(bytes, spec.base ? spec.base->digest : "");
  put_number(bytes, spec.disk_bytes);
  return content_digest({bytes});
}

}  // namespace

InstalledBackend::InstalledBackend(SandboxBackend& backend, std::shared_ptr<PackageService> packages,
                                   PreparedSnapshots* prepared, std::span<const std::string> python)
    : backend_(backend), packages_(std::move(packages)), prepared_(prepared) {
  if (!packages_) return;
  commands_ = packages_->setup();
  if (auto command = packages_->install_python(python); !command.empty()) commands_.push_back(std::move(command));
}

Status InstalledBackend::install(Sandbox& sandbox, const SandboxSpec& spec) const {
  SandboxSpec limits = spec;
  limits.call_time_limit_s = kInstallSeconds;
  limits.tools.clear();
  sandbox.set_call_limits(limits);
  for (const auto& command : commands_) {
    const auto outcome = TRY(sandbox.call("run_terminal_cmd", {{"command", command}}));
    if (outcome.ok && outcome.exit_code == 0) continue;
    return Status::unavailable("packages: `" + command + "` printed\n" + outcome.output);
  }
  sandbox.set_call_limits(spec);
  return {};
}

Result<std::unique_ptr<Sandbox>> InstalledBackend::create(const SandboxSpec& spec) {
  if (commands_.empty() || !spec.begins_on.empty()) return backend_.create(spec);
  OpenToMakers open(backend_, packages_);
  const auto install_it = [&](Sandbox& sandbox) { return install(sandbox, spec); };
  if (prepared_ && !spec.image)
    return prepared_->begin(open, spec, key_of_installed(*packages_, commands_, spec), install_it);
  auto sandbox = TRY(open.create(spec));
  TRY(install_it(*sandbox));
  return sandbox;
}

}  // namespace tandem::envs
