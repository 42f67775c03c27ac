// Where the model of an evaluation comes from: a conversation with it for each sample.
#pragma once

#include <memory>
#include <vector>

#include "envs/tasks/task.h"
#include "rollout/agent/agent_model.h"

namespace tandem::eval {

class ModelSource {
 public:
  virtual ~ModelSource() = default;
  // A conversation about `task` that draws by `seed`. `foreign`: tools of servers, beside those of the suite. It does
  // not outlive the source. May be called from several threads; each conversation has one.
  virtual Result<std::unique_ptr<rollout::AgentModel>> begin(const envs::Task& task, uint64_t seed,
                                                             std::vector<envs::ForeignTool> foreign) = 0;
};

}  // namespace tandem::eval
