// An agent's turns by our own engine, in this process: token in and token out, as in a rollout.
//
// The opening messages, the tools that they name, the call format and the results are those of training
// (envs/episodes/protocol.h). What the model said is never made into tokens again.
#pragma once

#include <memory>

#include "base/file.h"
#include "model/tool_dialect.h"
#include "model/weights.h"
#include "rollout/agent/agent_model.h"
#include "rollout/agent/conversation.h"
#include "rollout/books/trajectory.h"
#include "rollout/engine/engine.h"

namespace tandem::rollout {

struct EngineModelSettings {
  fs::path model;
  model::WeightFormat format = model::WeightFormat::kBf16;
  kernels::SamplingSettings sampling{.temperature = 0};
  uint64_t seed = 0;
  int max_new_tokens = 1024;  // of a turn
  int max_tokens = 0;         // of everything; 0: what the model was made for, 8192 at most
  int threads = 1;
  std::vector<std::string> tools = envs::prompted_tools();  // that are offered
  std::vector<envs::ForeignTool> foreign_tools;             // beside them
};

class EngineModel final : public AgentModel {
 public:
  // Loads the model. The task's files count by their names alone.
  static Result<std::unique_ptr<EngineModel>> load(const EngineModelSettings& settings, const envs::Task& task);

  std::string name() const override { return name_; }
  const std::vector<envs::Message>& opening() const override { return opening_; }
  const Json& tools() const override { return tools_; }
  Result<AgentTurn> turn(std::span<const envs::ToolOutcome> replies, const TurnListener& listener,
                         const std::stop_token& stop) override;

  // All tokens so far.
  const Trajectory& trajectory() const { return trajectory_; }

 private:
  EngineModel(Engine engine, Conversation conversation)
      : engine_(std::move(engine)), conversation_(std::move(conversation)) {}
  Status begin_turn(std::span<const envs::ToolOutcome> replies);
  void read_calls(AgentTurn& turn, const std::string& said) const;

  Engine engine_;
  Conversation conversation_;
  model::ToolDialect dialect_ = model::ToolDialect::kHermes;
  TurnRequest request_;
  std::string name_;
  std::vector<envs::Message> opening_;
  Json tools_ = Json::array();
  Trajectory trajectory_;
  int turns_ = 0;
};

}  // namespace tandem::rollout
