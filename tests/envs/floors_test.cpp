#include "envs/episodes/floors.h"

#include <gtest/gtest.h>

#include "envs/sandbox/host_backend.h"
#include "envs/tasks/workspace/kinds.h"

namespace tandem::envs {
namespace {

TEST(Floors, scripts_stay_where_they_were_measured) {
  HostBackend backend;
  double nothing = 0, random_call = 0, script = 0, count = 0;
  for (const auto kind : task_kinds()) {
    double of_kind = 0;
    for (uint64_t seed = 0; seed < 12; ++seed) {
      const auto task = *make_task({std::string(kind), Split::kHeldout, seed});
      nothing += play_floor(Floor::kNothing, task, backend)->reward;
      random_call += play_floor(Floor::kRandomCall, task, backend)->reward;
      of_kind += play_floor(Floor::kRegexScript, task, backend)->reward;
      ++count;
    }
    script += of_kind;
    RecordProperty(std::string(kind), std::to_string(of_kind / 12));
  }
  EXPECT_EQ(nothing, 0);
  EXPECT_LT(random_call / count, 0.05);
  EXPECT_GT(script / count, 0.2);
  EXPECT_LT(script / count, 0.6);
}

}  // namespace
}  // namespace tandem::envs
