// Page tables of sequences over key/value memory; equal prefixes share pages.
//
// A sequence's table lists its pages in order of position. Whole pages are counted, not copied, and are kept after the
// last sequence let go of them, until their room is needed: what was computed once is found again by its tokens
// (prefix_tree.h). A page that a sequence will write to is its own. Scheduling is the engine's: `grow` only refuses.
// The executor owns the memory; the cache handles ids. Errors are those of the executor.
//
// Thread safety: none; owned by one engine and used on its thread.
// Invariants: 1. a free page is in no table and not remembered; 2. a page in two tables is never written.
#pragma once

#include <optional>
#include <vector>

#include "base/status.h"
#include "model/executor.h"
#include "rollout/engine/prefix_tree.h"

namespace tandem::rollout {

using PageTable = std::vector<int>;

class KvCache {
 public:
  // Manages all pages of `executor`, which must outlive the cache.
  explicit KvCache(model::Executor& executor);

  // Makes `table` long enough for `tokens` positions; new pages are cleared. False, with the table as it was, where too
  // few pages are free or only remembered.
  Result<bool> grow(PageTable& table, int tokens);

  // Fills the empty `table` with cached pages of `tokens`: whole pages are shared, the last one is copied. Returns the
  // number of tokens; empty, with the table unchanged, where many more will be cached one step later. `salt`: only
  // pages of the same salt match. `copied`: the page that the last one of `table` is a copy of, or -1.
  Result<std::optional<int>> adopt(std::span<const int32_t> tokens, uint64_t step, PageTable& table,
                                   std::string_view salt, int& copied);

  // `table` holds, or will hold after `step`, the keys and values of `tokens`. `tail`: what is behind the last whole
  // page will stay, too, as long as the table.
  void remember(std::span<const int32_t> tokens, const PageTable& table, bool tail, uint64_t step,
                std::string_view salt);
  // Forgets all cached pages, after a change of weights.
  void forget();

  // Releases the pages of `table` behind the first `pages`.
  void shrink(PageTable& table, size_t pages);
  // Releases all pages of `table`.
  void release(PageTable& table);

 private:
  // Frees remembered pages that no table has, until `count` are free.
  bool make_free(size_t count);
  int take();
  void let_go(int page);

  model::Executor* executor_;
  PrefixTree tree_;
  std::vector<int> free_;
  std::vector<int> holders_;  // tables that list the page, and the tree
};

}  // namespace tandem::rollout
