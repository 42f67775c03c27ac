// Sandboxes that begin with the packages that every episode is to have (PackageService::setup).
//
// They are installed once, into the home folder of a sandbox that is sealed then; what it has written is a read-only
// layer below all others. Where a sandbox cannot be sealed each is installed into by itself. The registries are open
// while that is done; afterwards where the spec says so.
//
// Ownership: back end, service and snapshots outlive it. Thread safety: as the back end's.
#pragma once

#include "envs/episodes/prepared_snapshots.h"
#include "envs/sandbox/sandbox.h"

namespace tandem::envs {

class InstalledBackend final : public SandboxBackend {
 public:
  // `prepared`: null where nothing is to be shared. `python`: packages of Python that are wanted beside those of every
  // episode.
  InstalledBackend(SandboxBackend& backend, std::shared_ptr<PackageService> packages, PreparedSnapshots* prepared,
                   std::span<const std::string> python = {});

  // kUnavailable, with what the command printed, where a package cannot be installed.
  Result<std::unique_ptr<Sandbox>> create(const SandboxSpec& spec) override;
  std::string_view kind() const override { return backend_.kind(); }
  uint64_t spawners_started() const override { return backend_.spawners_started(); }

 private:
  Status install(Sandbox& sandbox, const SandboxSpec& spec) const;

  std::vector<std::string> commands_;

  SandboxBackend& backend_;
  const std::shared_ptr<PackageService> packages_;
  PreparedSnapshots* const prepared_;
};

}  // namespace tandem::envs
