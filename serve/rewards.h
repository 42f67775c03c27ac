// POST /v1/rewards: what a reward model says of a conversation, for `reward.http` of a run and for whoever asks
// (docs/rewards.md).
//
// Rewards are computed on a thread of their own, over the weights that the model's engine has; they wait for no
// answer that is being sampled.
//
// Thread safety: none; the server's loop owns a RewardRequests. A RewardSeat may be used from any thread.
#pragma once

#include <functional>
#include <memory>
#include <mutex>
#include <string_view>
#include <vector>

#include "base/work_queue.h"
#include "model/executor.h"
#include "model/reward_model.h"
#include "serve/keys.h"
#include "serve/openapi.h"

namespace tandem::serve {

class ModelSet;

// The tokens of {"messages", "tools", "chat_template_kwargs"}, written as in the training of the reward model.
using RewardReader = std::function<Result<std::vector<int32_t>>(const Json& conversation)>;
// Of a model directory and its head.
using MakeRewardReader = std::function<Result<RewardReader>(const fs::path& directory, const model::RewardHead& head)>;

// A model that gives rewards; one thread at a time.
struct ServedRewards {
  RewardReader read;
  model::RewardModel model;
};

// Null where the model has no head of rewards. `weights` are those of its engine at `place`; of a device, whose engine
// keeps none on the host, they are read once more, and rewards are computed by the host with the device's bits.
Result<std::shared_ptr<ServedRewards>> load_rewards(const fs::path& directory, const MakeRewardReader& make,
                                                    std::shared_ptr<const model::Weights> weights,
                                                    const model::Place& place);

// The rewards of a served model, which sleep takes away and waking brings back.
class RewardSeat {
 public:
  explicit RewardSeat(std::shared_ptr<ServedRewards> rewards) : is_of_rewards_(rewards != nullptr), rewards_(rewards) {}
  bool is_of_rewards() const { return is_of_rewards_; }
  std::shared_ptr<ServedRewards> get() const {
    const std::scoped_lock lock(mutex_);
    return rewards_;
  }
  void put(std::shared_ptr<ServedRewards> rewards) {
    const std::scoped_lock lock(mutex_);
    rewards_ = std::move(rewards);
  }

 private:
  const bool is_of_rewards_;
  mutable std::mutex mutex_;
  std::shared_ptr<ServedRewards> rewards_;  // null while the model sleeps
};

class RewardRequests {
 public:
  // `models` outlive this.
  explicit RewardRequests(const ModelSet& models);

  static bool has(std::string_view path);
  DescribedPath described() const;
  // Of its path; the models are loaded. Answers now or later, in any case.
  void answer(wire::HttpRequest request, std::shared_ptr<const KeyTerms> key, const wire::HttpReply& reply);

  // Readable when answers are to be sent, by run_completions().
  int wake_fd() const { return queue_.wake_fd(); }
  void run_completions() { queue_.run_completions(); }
  size_t pending() const { return queue_.pending(); }

 private:
  wire::HttpResponse respond(const std::string& body, const KeyTerms& key) const;

  const ModelSet& models_;
  const FieldTable fields_;
  WorkQueue queue_;
};

}  // namespace tandem::serve
