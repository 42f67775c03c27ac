// Where the model of an evaluation comes from: a conversation with it for each sample.
#pragma once

#include <memory>
#include <optional>
#include <vector>

#include "envs/tasks/task.h"
#include "rollout/agent/agent_model.h"

namespace tandem::eval {

// What a conversation has used of the processors that compute its model.
struct ModelUse {
  double core_seconds = 0, gpu_seconds = 0;
};

class ModelSource {
 public:
  virtual ~ModelSource() = default;
  // A conversation about `task` that draws by `seed`. `foreign`: tools of servers, beside those of the suite. It does
  // not outlive the source. May be called from several threads; each conversation has one.
  virtual Result<std::unique_ptr<rollout::AgentModel>> begin(const envs::Task& task, uint64_t seed,
                                                             std::vector<envs::ForeignTool> foreign) = 0;
  // Of a conversation that `begin` gave, between its turns. Nothing where the model is elsewhere.
  virtual std::optional<ModelUse> use_of(const rollout::AgentModel&) const { return std::nullopt; }
};

}  // namespace tandem::eval
