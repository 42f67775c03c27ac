// Sandboxes in which codebase_search can be called: those of another backend, with that one call answered here.
//
// The sandbox goes on to run every other tool; of its files the search learns what the sandbox says. Where a list of
// tools does not name codebase_search it does not exist, as with all others.
#pragma once

#include "envs/sandbox/sandbox.h"
#include "envs/search/code_searcher.h"
#include "envs/search/snapshot_indexes.h"

namespace tandem::envs {

class SearchingBackend final : public SandboxBackend {
 public:
  // Both outlive it and its sandboxes.
  SearchingBackend(SandboxBackend& backend, CodeSearcher& searcher) : backend_(backend), searcher_(searcher) {}
  // Sandboxes that begin from a snapshot begin with its index; it outlives them too.
  SearchingBackend(SandboxBackend& backend, CodeSearcher& searcher, SnapshotIndexes& snapshots)
      : backend_(backend), searcher_(searcher), snapshots_(&snapshots) {}

  // A spec without tools offers all of them, codebase_search among them.
  Result<std::unique_ptr<Sandbox>> create(const SandboxSpec& spec) override;
  std::string_view kind() const override { return backend_.kind(); }
  uint64_t spawners_started() const override { return backend_.spawners_started(); }

 private:
  SandboxBackend& backend_;
  CodeSearcher& searcher_;
  SnapshotIndexes* snapshots_ = nullptr;
};

}  // namespace tandem::envs
