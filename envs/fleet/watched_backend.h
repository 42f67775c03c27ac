// A sandbox backend that records creation, hand-out, calls, inspection and end of its sandboxes in a Fleet.
//
// It stands between a pool and the backend that makes sandboxes, so that those kept ready are seen, too.
//
// Ownership: the backend below and the clock must outlive it, and it the sandboxes that come from it. Thread safety:
// all of it may be called from several threads. Nothing here waits but create() and exec().
#pragma once

#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "envs/fleet/fleet.h"

namespace tandem::envs {

class WatchedBackend final : public SandboxBackend {
 public:
  // `life` tells one life of the server from another.
  WatchedBackend(SandboxBackend& backend, const Clock& clock, uint64_t life);
  ~WatchedBackend() override;

  Result<std::unique_ptr<Sandbox>> create(const SandboxSpec& spec) override;

  // As those of Fleet; rows with what each uses, which takes some reading of small files.
  std::vector<SandboxRow> rows(uint64_t after, size_t most) const;
  size_t size() const;
  Result<Fleet::Events> events(uint64_t after, std::string_view sandbox, size_t most) const;
  // The last `last` of them.
  Result<Fleet::Events> last_events(size_t last, std::string_view sandbox) const;
  FleetFigures figures() const;

  // Runs a program beside what the sandbox is for; see Inspector::exec. kNotFound for a name that none has.
  Result<ExecOutcome> exec(std::string_view id, const ExecRequest& request, const std::stop_token& stop);
  // Ends a sandbox at once: calls in it fail as those of a lost one do. As it was just before.
  Result<SandboxRow> kill(std::string_view id);
  // Notes that the sandboxes of a lease are about to end, with the reason.
  void lease_ending(uint64_t lease, EndReason reason);

  struct State;

 private:
  SandboxBackend& backend_;
  std::shared_ptr<State> state_;
};

}  // namespace tandem::envs
