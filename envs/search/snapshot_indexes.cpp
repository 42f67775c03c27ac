#include "envs/search/snapshot_indexes.h"

#include <fmt/format.h>

#include <algorithm>
#include <thread>

#include "envs/sandbox/capabilities.h"

namespace tandem::envs {
namespace {

constexpr size_t kSlice = 32;                                // pieces between two looks at the clock
constexpr auto kUntilTold = std::chrono::milliseconds(150);  // after which a file's times tell one change from the next

// Files that were written a moment ago have no stamp yet, and every sandbox would read them again.
bool has_unsettled(const CodeIndex& index) {
  const auto known = index.known();
  return std::any_of(known.begin(), known.end(), [](const KnownSource& source) { return source.stamp == 0; });
}

}  // namespace

std::shared_ptr<SnapshotIndexes::Entry> SnapshotIndexes::entry_of(const std::shared_ptr<const FileLayer>& layer) {
  std::lock_guard lock(mutex_);
  std::erase_if(entries_, [](const auto& each) { return each.second->layer.expired(); });
  auto& entry = entries_[layer.get()];
  if (!entry) {
    entry = std::make_shared<Entry>();
    entry->layer = layer;
  }
  return entry;
}

size_t SnapshotIndexes::kept() const {
  std::lock_guard lock(mutex_);
  return static_cast<size_t>(
      std::count_if(entries_.begin(), entries_.end(), [](const auto& each) { return !each.second->layer.expired(); }));
}

Result<std::shared_ptr<const CodeIndex>> SnapshotIndexes::of(SandboxBackend& backend, const SandboxSpec& spec) {
  const Time deadline = SystemClock().now() + patience_;
  const auto entry = entry_of(spec.begins_on.all.front());
  const std::unique_lock lock(entry->mutex, patience_);
  if (!lock) return fail(Status::unavailable("the index of the task's files is still being made for another episode"));
  if (!entry->made) TRY(make(*entry, backend, spec, deadline));
  return entry->made;
}

Status SnapshotIndexes::make(Entry& entry, SandboxBackend& backend, const SandboxSpec& spec, Time deadline) {
  const SystemClock clock;
  SandboxSpec own = spec;
  own.holder = {};
  own.on_network = {};
  own.sealable = false;
  const auto sandbox = TRY(backend.create(own));
  SourceView* const view = TRY(sources_of(*sandbox));
  const SourceAccess access{
      [&](auto known) { return view->source_changes(known); },
      [&](auto wanted) { return view->source_lines(wanted); },
  };
  if (!entry.making) entry.making = std::make_unique<CodeIndex>(searcher_.model().width);
  for (;;) {
    TRY(searcher_.update(*entry.making, access, kSlice));
    if (entry.making->waiting() == 0) break;
    if (clock.now() >= deadline) {
      return Status::unavailable(fmt::format("the index of the task's files is being made: {} of {} pieces are left",
                                             entry.making->waiting(), entry.making->chunks()));
    }
  }
  if (has_unsettled(*entry.making)) {
    std::this_thread::sleep_for(kUntilTold);
    TRY(searcher_.update(*entry.making, access));
  }
  entry.made = std::move(entry.making);
  return {};
}

}  // namespace tandem::envs
