// The model of an evaluation in this process: loaded once, one engine that samples for all samples that are on.
#pragma once

#include <atomic>
#include <condition_variable>
#include <deque>
#include <map>
#include <memory>
#include <mutex>
#include <thread>

#include "envs/episodes/profile.h"
#include "eval/model_source.h"
#include "eval/suite.h"
#include "kernels/stream.h"
#include "model/weight_format.h"
#include "rollout/agent/conversation.h"
#include "rollout/agent/turn_source.h"
#include "serve/engine_thread.h"

namespace tandem::eval {

// An engine on a thread of its own for turns of many threads. What a turn samples does not depend on the others.
//
// Thread safety: all of it; one turn of a conversation at a time. Turns end before it is destroyed.
class SharedEngine final : public rollout::TurnSource {
 public:
  explicit SharedEngine(rollout::Engine engine);
  ~SharedEngine() override;

  int max_tokens() const override { return max_tokens_; }
  std::string numerics_id() const override { return numerics_id_; }
  // kUnavailable where the engine has failed.
  Status sample(rollout::SequenceId conversation, std::span<const int32_t> tokens, const rollout::TurnRequest& request,
                const std::function<void(const rollout::SampledToken&)>& on_token,
                const std::stop_token& stop) override;
  // Every turn is a sequence of its own, which finds what the one before it has computed.
  void forget(rollout::SequenceId) override {}

 private:
  struct Turn {
    std::deque<rollout::SampledToken> tokens;
    Status refused;
  };
  void distribute();

  const int max_tokens_;
  const std::string numerics_id_;
  std::mutex mutex_;
  std::condition_variable_any changed_;
  std::map<rollout::SequenceId, Turn> turns_;  // that are on
  rollout::SequenceId last_ = 0;
  Status trouble_;
  FileDescriptor wake_;  // of the thread that distributes
  bool stopping_ = false;
  std::vector<serve::EngineThread::Turn> to_start_;
  std::vector<rollout::SequenceId> to_release_;
  serve::EngineThread engine_;  // owned by that thread
  std::thread distributor_;
};

struct EngineTerms {
  fs::path model;
  model::WeightFormat format = model::WeightFormat::kBf16;
  int slots = 8;
  int max_tokens = 0;  // of a conversation; 0: what the model was made for, 8192 at most
  model::Place place;  // where it computes
  rollout::ConversationSettings conversation;
  double temperature = 1;
  int max_new_tokens = 1024;
  std::vector<std::string> tools;
  std::string system;           // message, as a profile has it
  envs::Compaction compaction;  // the same
};

class EngineSource final : public ModelSource {
 public:
  static Result<std::unique_ptr<EngineSource>> load(EngineTerms terms);
  // Bytes that its weights, keys and values take at most where they are, before they are loaded.
  static Result<uint64_t> memory_of(const EngineTerms& terms);
  Result<std::unique_ptr<rollout::AgentModel>> begin(const envs::Task& task, uint64_t seed,
                                                     std::vector<envs::ForeignTool> foreign) override;
  // The conversation's part of the passes, by rows: on all threads of the place, or on its GPU.
  std::optional<ModelUse> use_of(const rollout::AgentModel& conversation) const override;

 private:
  EngineSource(EngineTerms terms, rollout::Conversation conversation, rollout::Engine engine)
      : terms_(std::move(terms)), conversation_(std::move(conversation)), engine_(std::move(engine)) {}

  const EngineTerms terms_;
  const rollout::Conversation conversation_;
  SharedEngine engine_;
  std::atomic<rollout::SequenceId> conversations_ = 0;
};

}  // namespace tandem::eval
