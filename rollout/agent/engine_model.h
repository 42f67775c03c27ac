// Runs an agent's turns on our own engine: token in and token out, as in a rollout.
//
// The opening messages, the tools, the format of calls and results are those of training: one implementation
// (rollout/agent/conversation.h). What the model said is never made into tokens again.
#pragma once

#include <memory>

#include "base/file.h"
#include "envs/episodes/profile.h"
#include "model/weights.h"
#include "rollout/agent/agent_model.h"
#include "rollout/agent/conversation.h"
#include "rollout/agent/turn_source.h"
#include "rollout/books/trajectory.h"

namespace tandem::rollout {

struct EngineModelSettings {
  std::string name;
  kernels::SamplingSettings sampling{.temperature = 0};
  uint64_t seed = 0;
  int max_new_tokens = 1024;                                // of a turn
  std::vector<std::string> tools = envs::prompted_tools();  // that are offered
  std::vector<envs::ForeignTool> foreign_tools;             // beside them
  std::string system = std::string(envs::kSystemMessage);   // where the template writes the tools
  envs::Compaction compaction;                              // of the harness profile
  SequenceId conversation = 1;                              // at the source
};

// An engine of its own, and what it says.
struct LoadedModel {
  std::string name;
  Conversation conversation;
  std::unique_ptr<TurnSource> source;
};
struct LoadSettings {
  fs::path model;
  model::WeightFormat format = model::WeightFormat::kBf16;
  int max_tokens = 0;  // of a conversation; 0: what the model was made for, 8192 at most
  model::Place place;  // where it computes
  ConversationSettings conversation;
};
Result<LoadedModel> load_model(const LoadSettings& settings);

class EngineModel final : public AgentModel {
 public:
  // `source` and `conversation` outlive the model.
  EngineModel(TurnSource& source, const Conversation& conversation, const EngineModelSettings& settings,
              const envs::Task& task);
  ~EngineModel() override { source_.forget(settings_.conversation); }

  std::string name() const override { return settings_.name; }
  const std::vector<envs::Message>& opening() const override { return opening_.messages; }
  const Json& tools() const override { return opening_.tools; }
  Result<AgentTurn> turn(std::span<const envs::ToolOutcome> replies, const TurnListener& listener,
                         const std::stop_token& stop) override;

  // All tokens so far, in segments where the conversation was summed up.
  const Trajectory& trajectory() const { return trajectory_; }

 private:
  struct Piece {  // what was sampled after `prompt`
    std::vector<int32_t> prompt, tokens;
    std::vector<float> logprobs;
    std::string cut_by;
  };
  Result<std::vector<int32_t>> opening_tokens() const;
  Result<Piece> sample(std::span<const int32_t> next, const std::function<void(const Piece&)>& on_token,
                       const std::stop_token& stop);
  // Has the conversation summed up, into turn.summary, and gives the tokens that the next segment begins with; none
  // where turn.cut_by says why there is no summary.
  Result<std::vector<int32_t>> compact(const Reply& reply, AgentTurn& turn, const TurnListener& listener,
                                       const std::stop_token& stop);

  TurnSource& source_;
  const Conversation& conversation_;
  const EngineModelSettings settings_;
  const envs::Opening opening_;
  Trajectory trajectory_;
  std::vector<int32_t> last_turn_;
  Said said_;  // in it
  int turns_ = 0;
};

}  // namespace tandem::rollout
