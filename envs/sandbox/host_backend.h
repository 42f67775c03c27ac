// Calls run on the host, in a scratch folder: no isolation at all.
//
// Only for calls that we wrote ourselves: demonstrations of our own oracle, scripted floors, and tests. A model's calls
// never come here.
#pragma once

#include <memory>

#include "envs/sandbox/sandbox.h"

namespace tandem::envs {

class HostBackend final : public SandboxBackend {
 public:
  Result<std::unique_ptr<Sandbox>> create(const SandboxSpec& spec) override;
};

}  // namespace tandem::envs
