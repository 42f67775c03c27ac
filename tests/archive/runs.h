// Runs as they lie on disk, for the tests of this folder: books by the ledger, a config that `tandem run` wrote.
#pragma once

#include <string>

#include "archive/entry.h"
#include "run/resume.h"
#include "tests/dashboard/synthetic_run.h"

namespace tandem::archive {

// A run of two_kinds() in a folder of its own; `alter` changes its config.
class RecordedRun : public dashboard::SyntheticRun {
 public:
  explicit RecordedRun(const std::function<void(run::RunConfig&)>& alter = {}) : SyntheticRun(dashboard::two_kinds()) {
    run::RunConfig config;
    config.run.steps = 2;
    config.model.path = "models/tiny";
    if (alter) alter(config);
    EXPECT_TRUE(run::write_recorded(dir(), config, {}));
    send(rollout::PlanSet{plan()});
  }

  // Ended at `time`, seconds since 1970, with the last word `state`.
  void end(const std::string& state, double time = 1000) const {
    write("status.json", dump_json(Json{{"state", state}, {"time", time}, {"wall_seconds", 60.0}}));
    write("supervisor.json", R"({"exit": 0, "wall_seconds": 60.0})");
    // A status that was written just now is of a run that is on.
    const auto an_hour_ago = fs::file_time_type::clock::now() - std::chrono::hours(1);
    for (const char* name : {"status.json", "supervisor.json"}) fs::last_write_time(dir() / name, an_hour_ago);
  }
  void put(const fs::path& name, const std::string& text = "something") const {
    fs::create_directories((dir() / name).parent_path());
    write(name.string(), text);
  }
  // Checkpoints of these steps; `latest` names the last.
  void checkpoints(std::initializer_list<int> steps) const {
    for (const int step : steps) {
      const std::string name = "step_" + std::to_string(step);
      put("checkpoints/" + name + "/learner.json", "{}");
      fs::remove(dir() / "checkpoints" / "latest");
      fs::create_symlink(name, dir() / "checkpoints" / "latest");
    }
  }
  bool has(const fs::path& name) const { return fs::exists(dir() / name); }
};

}  // namespace tandem::archive
