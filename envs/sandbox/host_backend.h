// Calls run on the host, in a scratch folder: no isolation at all.
//
// Only for our own calls: demonstrations of the oracle, scripted baselines, and tests. Never for calls of a model.
#pragma once

#include <memory>

#include "envs/sandbox/sandbox.h"

namespace tandem::envs {

class HostBackend final : public SandboxBackend {
 public:
  Result<std::unique_ptr<Sandbox>> create(const SandboxSpec& spec) override;
};

}  // namespace tandem::envs
