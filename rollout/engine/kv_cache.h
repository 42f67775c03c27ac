// Who holds which page of key/value memory; pages are shared where prefixes are equal.
//
// A sequence's table lists its pages in order of position. Whole pages of a common prefix are counted, not copied; a
// page that a sequence will write to is its own. The cache never decides who waits: `grow` says no, the engine chooses.
// The memory is the executor's; here are ids alone. Errors are those of the executor.
//
// Thread safety: none; owned by one engine and used on its thread.
// Invariants: 1. a free page is in no table; 2. a page in two tables is never written; 3. used() + free() ==
// capacity().
#pragma once

#include <vector>

#include "base/status.h"
#include "model/executor.h"

namespace tandem::rollout {

using PageTable = std::vector<int>;

class KvCache {
 public:
  // Of all pages of `executor`, which must outlive this.
  explicit KvCache(model::Executor& executor);

  int capacity() const { return executor_->pages(); }
  int free() const { return static_cast<int>(free_.size()); }

  // Makes `table` long enough for `tokens` positions; new pages are cleared. False, with nothing changed, where too few
  // pages are free.
  Result<bool> grow(PageTable& table, int tokens);

  // Gives the empty `table` the first `tokens` positions of `donor`: whole pages shared, the rest copied. False, with
  // nothing changed, where the copy finds no free page.
  Result<bool> share(const PageTable& donor, int tokens, PageTable& table);

  // Lets go of all pages of `table`.
  void release(PageTable& table);

 private:
  model::Executor* executor_;
  std::vector<int> free_;
  std::vector<int> holders_;  // tables that list the page
};

}  // namespace tandem::rollout
