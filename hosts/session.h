// Reactions of a host to each beat of its run: which processes it starts, asks to end, ends, forgets. A pure machine:
// no processes, files or clocks.
//
// A beat names all processes that are to be there. What is not named is ended, and forgotten once it is gone: after a
// host was cut off, nothing goes on that the run has replaced. A process is started once, whatever beats come twice.
//
// Thread safety: none.
#pragma once

#include <map>
#include <vector>

#include "hosts/protocol.h"

namespace tandem::hosts {

class Session {
 public:
  struct Process {
    enum class State : uint8_t { kRunning, kEnded };
    State state = State::kRunning;
    int64_t process = -1;  // of the launcher; -1: it could not be started
    std::string log;
    int code = 0, signal = 0;
    std::string failure;
    bool is_asked = false, is_told = false;  // to end, when it likes or now
  };

  // Actions.
  struct Start {  // answered by started or failed
    HostJob job;
  };
  struct End {
    int64_t process = 0;
    run::EndKind kind = run::EndKind::kAsk;
  };
  using Action = std::variant<Start, End>;

  // Beats that are older than one that was heard change nothing.
  std::vector<Action> on_beat(const Beat& beat);
  // From now on nothing is started, and everything is asked to end.
  std::vector<Action> drain();

  void started(const HostJob& job, int64_t process);
  void failed(const HostJob& job, std::string why);
  // False for a process that is not of the session.
  bool ended(const run::Ending& ending);

  const std::map<uint64_t, Process>& processes() const { return processes_; }  // by their numbers
  std::vector<int64_t> running() const;

 private:
  static void end(Process& process, run::EndKind kind, std::vector<Action>& actions);
  std::map<uint64_t, Process> processes_;
  uint64_t last_beat_ = 0, last_number_ = 0;  // numbers up to the last were started once
  bool is_draining_ = false;
};

}  // namespace tandem::hosts
