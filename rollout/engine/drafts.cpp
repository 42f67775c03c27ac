#include "rollout/engine/drafts.h"

#include <algorithm>

namespace tandem::rollout {

namespace {
// As good as so many tokens that have come as predicted: that the answer begins as the prediction does.
constexpr int kTrusted = 16;
}  // namespace

void Drafts::begin_turn(std::vector<int32_t> prediction) {
  prediction_ = std::move(prediction);
  predicted_.reset();
  if (!prediction_.empty()) predicted_.emplace().grow(prediction_);
  used_.assign(prediction_.size(), false);
  at_ = 0;
  matched_ = kTrusted;
  lost_ = false;
}

bool Drafts::said(std::span<const int32_t> tokens, int turn_start) {
  if (!predicted_) return false;
  const int32_t token = tokens.back();
  const int size = static_cast<int>(prediction_.size());
  if (!lost_ && at_ < size && prediction_[at_] == token) {
    const bool first = !used_[at_];
    used_[at_++] = true;
    ++matched_;
    return first;
  }
  const auto answer = tokens.subspan(turn_start);
  TokenMatch match = predicted_->find(prediction_, answer, at_);
  if (match.length == 0) match = find_nearby(answer);
  lost_ = match.length == 0;
  matched_ = match.length;
  if (!lost_) at_ = match.at;
  return false;
}

// A short departure: where the last token stands a little further on.
TokenMatch Drafts::find_nearby(std::span<const int32_t> answer) const {
  constexpr int kNearby = 48;
  const int size = static_cast<int>(prediction_.size());
  TokenMatch best;
  for (int at = at_ + 1; at < std::min(size, at_ + kNearby); ++at) {
    const int most = std::min(at, static_cast<int>(answer.size()));
    int length = 0;
    while (length < most && length < TokenLookup::kShortestMatch &&
           prediction_[at - 1 - length] == answer[answer.size() - 1 - length])
      ++length;
    if (length > best.length) best = {at, length};
  }
  return best;
}

Draft Drafts::next(std::span<const int32_t> tokens, int most) {
  Draft draft;
  if (most <= 0) return draft;
  own_.grow(tokens);
  const TokenMatch match = own_.find(tokens, tokens, static_cast<int>(tokens.size()));
  const int left = static_cast<int>(prediction_.size()) - at_;
  if (predicted_ && !lost_ && left > 0 && matched_ >= match.length) {
    const auto next = std::span(prediction_).subspan(at_, std::min(most, left));
    return {{next.begin(), next.end()}, DraftSource::kPrediction, matched_};
  }
  if (match.length == 0) return draft;
  draft.matched = match.length;
  // What repeats itself goes on in what was just drafted.
  for (int i = 0; i < most; ++i) {
    const size_t from = static_cast<size_t>(match.at + i);
    draft.tokens.push_back(from < tokens.size() ? tokens[from] : draft.tokens[from - tokens.size()]);
  }
  return draft;
}

}  // namespace tandem::rollout
