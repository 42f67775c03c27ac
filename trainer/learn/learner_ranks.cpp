// What the ranks of a learner do together: the sum of their gradients, its norm, and the weights that each has made.
#include <algorithm>
#include <cmath>

#include "kernels/optimizer.h"
#include "trainer/learn/learner.h"

namespace tandem::trainer {

// The own part of a slice over all elements of the model.
Slice Learner::own(const Slice& whole) const { return shard_ ? whole.part(shard_->begin, shard_->count) : whole; }

Status Learner::gather_weights() {
  if (!shard_) return {};
  return ranks_.gather(weights_->slice(), shards_of(weights_->layout().elements, ranks_.count()));
}

// A rank without a gradient adds -0, the one number that changes no other: not even -0, which + 0 would.
Status Learner::sum_over_ranks(bool any_here, bool any_at_all) {
  if (ranks_.count() == 1 || !any_at_all) return {};
  const Slice gradients = buffers_.at(kGradients);
  const auto values = gradients.host<float>();
  if (!any_here) {
    for (const Piece& range : slot_sum_->learned()) std::ranges::fill(values.subspan(range.begin, range.count), -0.0f);
  }
  if (shard_) return ranks_.reduce(values, shards_of(values.size(), ranks_.count()));
  for (const Piece& range : slot_sum_->learned()) {
    const Slice part = gradients.part(range.begin, range.count);
    const auto pieces = shards_of(range.count, ranks_.count());
    TRY(ranks_.reduce(part.host<float>(), pieces));
    TRY(ranks_.gather(part, pieces));
  }
  return {};
}

// Added over all pieces in order, whoever has them.
Result<double> Learner::norm_of(const Slice& gradients) {
  if (!shard_) {
    return std::sqrt(TRY(kernels::sum_of_squares(stream_, gradients.host<float>().data(), gradients.elements())));
  }
  const auto shards = shards_of(weights_->layout().elements, ranks_.count());
  std::vector<int> owners;
  for (size_t rank = 0; rank < shards.size(); ++rank)
    owners.resize((shards[rank].begin + shards[rank].count + kernels::kSquaresPiece - 1) / kernels::kSquaresPiece,
                  static_cast<int>(rank));
  std::vector<double> sums(owners.size());
  if (shard_->count > 0)
    TRY(kernels::sums_of_squares(stream_, gradients.host<float>().data(), shard_->count,
                                 sums.data() + shard_->begin / kernels::kSquaresPiece));
  TRY(ranks_.exchange(std::span(sums), owners));
  double total = 0;
  for (const double sum : sums) total += sum;
  return std::sqrt(total);
}

}  // namespace tandem::trainer
