// A run under faults: `tandem run` as a process of its own, whose roles are killed, stopped, cut off from the disk and
// given bad messages at the moments of a schedule.
//
// The faults are real: signals, limits of the kernel, messages that do not arrive. What the run notices is read where a
// person would read it, in status.json. Thread safety: none.
#pragma once

#include <functional>
#include <map>
#include <string>
#include <vector>

#include "base/clock.h"
#include "base/file.h"
#include "base/json.h"
#include "chaos/schedule.h"
#include "run/launcher.h"
#include "wire/faults.h"

namespace tandem::chaos {

struct TrialSettings {
  fs::path run_dir;
  std::vector<std::string> arguments;  // of `tandem`: "run", CONFIG, ..
  int faults = 0;                      // at most
  double hang_seconds = 180;           // without progress, after which the run counts as hung and is ended
  fs::path events = {};                // gets a line of JSON for each fault, and for what was noticed; empty: none
  int round = 1;                       // that they name
};

struct TrialResult {
  std::map<Kind, int> faults;            // that were done
  std::vector<double> detected_seconds;  // of each process that was killed or stopped: until status.json showed it
  int undetected = 0;                    // that went on, or whose run was over, before that
  bool hung = false;
  int exit = 0;  // of the run; 128 + n where signal n ended it
};

class Trial {
 public:
  // Called now and then with what has been done, for people.
  using OnProgress = std::function<void(const std::string&)>;

  // `clock` outlives it. The file of message faults is made beside the run's folder.
  static Result<Trial> begin(TrialSettings settings, const Clock& clock);
  // Runs until the run is over, hung, or `stop` says so: then the run is asked to end and waited for.
  Result<TrialResult> run(Schedule& schedule, const std::function<bool()>& stop, const OnProgress& on_progress);

 private:
  struct Process {
    std::string name;  // "rollout-0"
    int64_t pid = 0;
    bool keeps_books = false;
  };
  struct Watched {  // a process that something was done to
    Process process;
    Kind kind = Kind::kKill;
    Time since{};
  };
  struct Held {  // one that is to be let go
    Process process;
    Kind kind = Kind::kStop;
    Time until{};
  };
  Trial(TrialSettings settings, const Clock& clock, std::shared_ptr<wire::Faults> messages)
      : settings_(std::move(settings)), clock_(clock), messages_(std::move(messages)) {}
  Status look();
  Status detect(const Json& roles);
  Result<bool> hurt(const Fault& fault);
  // One line of `events`.
  Status note(std::string_view event, const Process& process, Json more);
  void let_go(bool all);

  const TrialSettings settings_;
  const Clock& clock_;
  std::shared_ptr<wire::Faults> messages_;
  run::LocalLauncher launcher_;
  std::vector<Process> processes_;  // that status.json shows and that may be hurt
  std::vector<Watched> watched_;
  std::vector<Held> held_;
  Json progress_;  // what changes while the run goes on
  Time last_progress_{}, next_look_{};
  TrialResult result_;
};

}  // namespace tandem::chaos
