#include "rollout/engine/kv_cache.h"

#include "kernels/attention.h"

namespace tandem::rollout {

using kernels::kPageTokens;

KvCache::KvCache(model::KvPool pool) : pool_(std::move(pool)), holders_(pool_.pages(), 0) {
  for (int page = pool_.pages() - 1; page >= 0; --page) free_.push_back(page);
}

bool KvCache::grow(PageTable& table, int tokens) {
  const size_t needed = (tokens + kPageTokens - 1) / kPageTokens;
  if (needed <= table.size()) return true;
  if (needed - table.size() > free_.size()) return false;
  while (table.size() < needed) {
    const int page = free_.back();
    free_.pop_back();
    pool_.clear(page);
    holders_[page] = 1;
    table.push_back(page);
  }
  return true;
}

bool KvCache::share(const PageTable& donor, int tokens, PageTable& table) {
  const int whole = tokens / kPageTokens;
  const bool copy = tokens % kPageTokens != 0;
  if (copy && free_.empty()) return false;
  for (int i = 0; i < whole; ++i) {
    ++holders_[donor[i]];
    table.push_back(donor[i]);
  }
  if (copy) {
    const int page = free_.back();
    free_.pop_back();
    holders_[page] = 1;
    pool_.copy(donor[whole], page);
    table.push_back(page);
  }
  return true;
}

void KvCache::release(PageTable& table) {
  for (const int page : table) {
    if (--holders_[page] == 0) free_.push_back(page);
  }
  table.clear();
}

}  // namespace tandem::rollout
