// The index of each prepared snapshot, made once and shared by the sandboxes that begin from it.
//
// It is made in a sandbox of its own that nothing else touches, so it holds what the snapshot holds, whatever the
// sandbox that asked has changed by then. Callers of one snapshot wait for each other, those of others do not; a caller
// whose time is up leaves what was done to the next one. An index goes when its snapshot does.
//
// Thread safety: all functions.
#pragma once

#include <map>
#include <memory>
#include <mutex>

#include "base/clock.h"
#include "envs/sandbox/layers.h"
#include "envs/sandbox/sandbox.h"
#include "envs/search/code_searcher.h"

namespace tandem::envs {

class SnapshotIndexes {
 public:
  // The searcher outlives it. A caller works or waits for `patience` at most.
  explicit SnapshotIndexes(CodeSearcher& searcher, Duration patience = std::chrono::seconds(20))
      : searcher_(searcher), patience_(patience) {}

  // The index of what a sandbox of `spec`, which begins on layers, begins with. kUnavailable where it is not ready in
  // time, and errors of the backend.
  Result<std::shared_ptr<const CodeIndex>> of(SandboxBackend& backend, const SandboxSpec& spec);

  size_t kept() const;

 private:
  struct Entry {
    std::weak_ptr<const FileLayer> layer;
    std::timed_mutex mutex;                 // of all that follows; whoever has it makes the index
    std::unique_ptr<CodeIndex> making;      // as far as it is
    std::shared_ptr<const CodeIndex> made;  // null: not yet
  };
  std::shared_ptr<Entry> entry_of(const std::shared_ptr<const FileLayer>& layer);
  Status make(Entry& entry, SandboxBackend& backend, const SandboxSpec& spec, Time deadline);

  CodeSearcher& searcher_;
  const Duration patience_;
  mutable std::mutex mutex_;
  std::map<const FileLayer*, std::shared_ptr<Entry>> entries_;  // by the youngest layer of a snapshot
};

}  // namespace tandem::envs
