// A sandbox backend with a cache of read-only calls whose results are known to be equal.
//
// A sandbox begins with nothing in it, and what is put into it is known: that, and the calls of tools that only write
// files, in their order and with what they answered, say which files there are. As long as nothing else has happened,
// read_file, grep and list_dir are functions of that and of their arguments, and give the bytes that another sandbox
// with the same beginning gave; so does read_lints where its linters look at one file at a time (repeatable_lints.h). A
// command, a server of tools, an operator's program or a restored snapshot end it for good. glob_file_search orders by
// times, and is not kept.
//
// All access to a sandbox must pass through this cache, so it wraps the creating backend directly.
//
// Ownership: backend and cache must outlive this and its sandboxes. Thread safety: as SandboxBackend.
#pragma once

#include <memory>

#include "envs/sandbox/read_cache.h"
#include "envs/sandbox/sandbox.h"

namespace tandem::envs {

class CachingBackend final : public SandboxBackend {
 public:
  CachingBackend(SandboxBackend& backend, ReadCache& cache) : backend_(backend), cache_(cache) {}
  Result<std::unique_ptr<Sandbox>> create(const SandboxSpec& spec) override;

 private:
  SandboxBackend& backend_;
  ReadCache& cache_;
};

}  // namespace tandem::envs
