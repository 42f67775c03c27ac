#include "rollout/engine/kv_cache.h"

#include "kernels/attention.h"

namespace tandem::rollout {

using kernels::kPageTokens;

KvCache::KvCache(model::Executor& executor) : executor_(&executor), tree_(kPageTokens), holders_(executor.pages(), 0) {
  for (int page = executor.pages() - 1; page >= 0; --page) free_.push_back(page);
}

Result<bool> KvCache::grow(PageTable& table, int tokens) {
  const size_t needed = (tokens + kPageTokens - 1) / kPageTokens, first = table.size();
  if (needed <= first) return true;
  if (!make_free(needed - first)) return false;
  while (table.size() < needed) table.push_back(take());
  TRY(executor_->clear(std::span(table).subspan(first)));
  return true;
}

Result<std::optional<int>> KvCache::adopt(std::span<const int32_t> tokens, uint64_t step, PageTable& table,
                                          std::string_view salt, int& copied) {
  copied = -1;
  const PrefixTree::Match match = tree_.find(tokens, step, salt);
  int adopted = static_cast<int>(match.pages.size()) * kPageTokens;
  // Half a page is what a step of waiting is worth.
  if (match.coming > adopted + match.copied + kPageTokens / 2) return std::optional<int>();
  for (const int page : match.pages) {
    ++holders_[page];
    table.push_back(page);
  }
  if (match.source < 0) return std::optional(adopted);
  ++holders_[match.source];
  if (make_free(1)) {
    table.push_back(take());
    TRY(executor_->copy(match.source, table.back()));
    adopted += match.copied;
    copied = match.source;
  }
  let_go(match.source);
  return std::optional(adopted);
}

void KvCache::remember(std::span<const int32_t> tokens, const PageTable& table, bool tail, uint64_t step,
                       std::string_view salt) {
  for (const int page : tree_.insert(tokens, table, tail, step, salt)) ++holders_[page];
}

void KvCache::forget() {
  for (const int page : tree_.clear()) let_go(page);
}

void KvCache::shrink(PageTable& table, size_t pages) {
  for (size_t i = pages; i < table.size(); ++i) {
    tree_.forget_tail(table[i]);
    let_go(table[i]);
  }
  table.resize(std::min(pages, table.size()));
}

void KvCache::release(PageTable& table) { shrink(table, 0); }

bool KvCache::make_free(size_t count) {
  while (free_.size() < count) {
    const auto page = tree_.evict([this](int page) { return holders_[page] == 1; });
    if (!page) return false;
    let_go(*page);
  }
  return true;
}

int KvCache::take() {
  const int page = free_.back();
  free_.pop_back();
  holders_[page] = 1;
  return page;
}

void KvCache::let_go(int page) {
  if (--holders_[page] == 0) free_.push_back(page);
}

}  // namespace tandem::rollout
