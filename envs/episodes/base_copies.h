// Sandboxes on a base where the backend cannot share files of the machine: each has a copy, within the limits of a
// task's own files.
//
// Ownership: the backend inside must outlive it and its sandboxes need neither. Thread safety: that of the backend.
#pragma once

#include "envs/sandbox/sandbox.h"

namespace tandem::envs {

class BaseCopies final : public SandboxBackend {
 public:
  explicit BaseCopies(SandboxBackend& backend) : backend_(backend) {}

  // kUnfit also where the base is too large to be copied, or has links.
  Result<std::unique_ptr<Sandbox>> create(const SandboxSpec& spec) override;
  std::string_view kind() const override { return backend_.kind(); }
  uint64_t spawners_started() const override { return backend_.spawners_started(); }

 private:
  SandboxBackend& backend_;
};

}  // namespace tandem::envs
