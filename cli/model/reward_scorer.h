// Rewards of conversations and of pairs of answers by a reward model, as `tandem score --reward` gives them.
#pragma once

#include <memory>
#include <span>
#include <string_view>

#include "cli/model/model_options.h"
#include "model/reward_model.h"
#include "trainer/sft/reward_reader.h"

namespace tandem::cli {

// Keys of a line: a conversation, a pair of answers (trainer/sft/preference.h), or tokens.
std::span<const std::string_view> reward_keys();

// Pairs that were scored.
struct RewardedPairs {
  int64_t pairs = 0;
  double right = 0;  // equal rewards count half
  double margins = 0;

  Json to_json() const;  // {"pairs", "accuracy", "margin"}
};

class RewardScorer {
 public:
  // kInvalid where the model has no head of rewards, or computes elsewhere than on a CPU.
  static Result<RewardScorer> create(const ModelOptions& options, int threads, bool by_trainer);

  // {"reward", "tokens"}, or of a pair {"chosen", "rejected", "margin"}.
  Result<Json> answer(const Json& line);
  const RewardedPairs& pairs() const { return pairs_; }

 private:
  RewardScorer(std::shared_ptr<const model::Weights> weights, kernels::Stream stream, model::RewardModel model,
               trainer::RewardReader reader, bool by_trainer)
      : weights_(std::move(weights)),
        stream_(std::move(stream)),
        model_(std::move(model)),
        reader_(std::move(reader)),
        by_trainer_(by_trainer) {}
  Result<double> reward(std::span<const int32_t> tokens);

  std::shared_ptr<const model::Weights> weights_;
  kernels::Stream stream_;
  model::RewardModel model_;
  trainer::RewardReader reader_;
  bool by_trainer_ = false;
  RewardedPairs pairs_;
};

}  // namespace tandem::cli
