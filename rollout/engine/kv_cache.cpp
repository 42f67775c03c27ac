#include "rollout/engine/kv_cache.h"

#include "kernels/attention.h"

namespace tandem::rollout {

using kernels::kPageTokens;

KvCache::KvCache(model::Executor& executor) : executor_(&executor), holders_(executor.pages(), 0) {
  for (int page = executor.pages() - 1; page >= 0; --page) free_.push_back(page);
}

Result<bool> KvCache::grow(PageTable& table, int tokens) {
  const size_t needed = (tokens + kPageTokens - 1) / kPageTokens;
  if (needed <= table.size()) return true;
  if (needed - table.size() > free_.size()) return false;
  const size_t first = table.size();
  while (table.size() < needed) {
    const int page = free_.back();
    free_.pop_back();
    holders_[page] = 1;
    table.push_back(page);
  }
  TRY(executor_->clear(std::span(table).subspan(first)));
  return true;
}

Result<bool> KvCache::share(const PageTable& donor, int tokens, PageTable& table) {
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
    table.push_back(page);
    TRY(executor_->copy(donor[whole], page));
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
