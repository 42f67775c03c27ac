#include "rollout/engine/token_lookup.h"

#include <algorithm>
#include <cstdlib>

namespace tandem::rollout {

namespace {
constexpr int kMostCandidates = 32;
}  // namespace

uint64_t TokenLookup::key_of(std::span<const int32_t> last) {
  uint64_t key = 0;
  for (const int32_t token : last) key = (key ^ static_cast<uint32_t>(token)) * 0x9E3779B97F4A7C15u;
  return key;
}

void TokenLookup::grow(std::span<const int32_t> tokens) {
  if (older_.empty() && !tokens.empty()) older_.assign(std::min<size_t>(kShortestMatch, tokens.size()), -1);
  for (size_t at = older_.size(); at < tokens.size(); ++at) {
    const auto [newest, is_new] = newest_.try_emplace(key_of(tokens.subspan(at - kShortestMatch, kShortestMatch)), -1);
    older_.push_back(newest->second);
    newest->second = static_cast<int>(at);
  }
}

TokenMatch TokenLookup::find(std::span<const int32_t> tokens, std::span<const int32_t> end, int near) const {
  if (end.size() < kShortestMatch) return {};
  const auto newest = newest_.find(key_of(end.last(kShortestMatch)));
  if (newest == newest_.end()) return {};
  TokenMatch best;
  int at = newest->second;
  for (int i = 0; i < kMostCandidates && at >= 0; ++i, at = older_[at]) {
    const int most = std::min({at, static_cast<int>(end.size()), kLongestMatch});
    int length = 0;
    while (length < most && tokens[at - 1 - length] == end[end.size() - 1 - length]) ++length;
    if (length < kShortestMatch) continue;  // another n-gram of the same key
    const bool nearer = std::abs(at - near) < std::abs(best.at - near);
    if (length > best.length || (length == best.length && nearer)) best = {at, length};
  }
  return best;
}

}  // namespace tandem::rollout
