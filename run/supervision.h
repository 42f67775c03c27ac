// The decisions of a run's supervisor: when to start a role, when to end a silent one, when the run is over and how it
// ended. A pure machine: events in, actions out; no sockets, processes, files or clocks.
//
// A role that dies is started again: at once at first, later after pauses of up to 5 s. One that dies too often, or
// whose exit code says that it cannot work here, fails the run. One that no machine can take waits for one that can,
// and the run goes on without it. One start is under way at a time. Events may come twice
// or late: the end of a process that is not known is ignored, and so is what the coordinator knows of an earlier life
// of a role. After Finish no role is started and no process is left.
//
// Roles may also be independent, as the models of a server are: there is no coordinator, what is Heard of a role comes
// from its owner, one that cannot be kept running fails alone while the others go on, and an interrupt ends all of
// them.
//
// Thread safety: none.
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <variant>
#include <vector>

#include "base/clock.h"
#include "run/launcher.h"
#include "wire/peer.h"

namespace tandem::run {

class Supervision {
 public:
  enum class End : uint8_t { kDone, kInterrupted, kFailed };

  struct Plan {
    std::vector<wire::Peer> roles;  // in the order of their starts
    int max_restarts = 0;           // of each role
    double silence_seconds = 0;     // after which a role is ended
    double start_seconds = 0;       // the same for one that has not introduced itself, where this is longer
    bool independent = false;
    // For independent roles: the window in which restarts count towards max_restarts (0: all count), and the time that
    // processes have to end after an interrupt.
    double restart_window_seconds = 0, end_seconds = 10;
    std::map<wire::Peer, std::string> labels = {};  // in notes; others as to_string writes them
  };
  explicit Supervision(const Plan& plan);

  // Events.
  struct Started {
    wire::Peer peer;
    int64_t process = 0;  // of the launcher
    uint64_t epoch = 0;   // grows with each life of the peer
    double unix_seconds = 0;
  };
  struct StartFailed {
    wire::Peer peer;
    std::string reason;
  };
  struct Added {  // the run has one more role from now on
    wire::Peer peer;
  };
  struct NoRoom {  // no machine can take the role now
    wire::Peer peer;
    std::string why;
  };
  struct Exited {
    Ending ending;
    bool plan_done = false;  // of the coordinator: the ledger says that no step is left
  };
  struct Seen {  // of a role, by the coordinator
    uint64_t epoch = 0;
    double silent_seconds = 0;
    std::string doing;
  };
  struct Heard {  // a report of the coordinator
    std::map<wire::Peer, Seen> roles;
  };
  // Asks for a checkpoint and a clean end. While the run is stopping, a second one ends it at once if it comes from a
  // person; further ones from a scheduler are ignored.
  struct Interrupted {
    enum class By : uint8_t { kPerson, kScheduler };
    By by = By::kPerson;
  };
  struct GivenUp {  // the coordinator says that going on is of no use
    std::string why;
  };
  struct DirectoryLost {  // the run directory is not where it was: what is written there goes nowhere
    std::string how;
  };
  struct Revived {  // an independent role that has failed is tried again
    wire::Peer peer;
  };
  struct Tick {};  // starts, deadlines and silence are decided at a tick
  using Event = std::variant<Started, StartFailed, Added, NoRoom, Exited, Heard, Interrupted, DirectoryLost, GivenUp,
                             Revived, Tick>;

  // Actions.
  struct Start {  // answered by Started, StartFailed or NoRoom
    wire::Peer peer;
  };
  struct Ask {  // a process may finish what it is doing
    int64_t process = 0;
  };
  // Ends a process at once. The shell adds the time of day to the note.
  struct EndSilent {
    wire::Peer peer;
    int64_t process = 0;
    double silent_seconds = 0;
    std::string doing;
  };
  struct AskReport {};  // of the coordinator
  struct AskFinish {};  // of the coordinator: a checkpoint and a clean end
  struct Stop {         // ends the processes at once and waits until they are gone; no Exited is expected
    std::vector<int64_t> processes;
  };
  struct Note {
    std::string text;
  };
  struct RoleFailed {  // an independent role: it is not started again unless it is revived
    wire::Peer peer;
    std::string why;
  };
  struct Finish {  // the last action but for a Stop of a process whose start was under way
    End end = End::kDone;
    std::string failure;
    std::optional<wire::Peer> quoted;  // the last lines of its log complete the failure
  };
  using Action = std::variant<Start, Ask, EndSilent, AskReport, AskFinish, Stop, Note, RoleFailed, Finish>;

  std::vector<Action> step(const Event& event, Time now);

  struct Role {
    enum class State : uint8_t { kStarting, kOk, kStalled, kRestarting, kDone, kFailed };

    wire::Peer peer;
    int64_t process = -1;  // of the launcher; -1: none
    uint64_t epoch = 0;    // of that process
    double since = 0;      // Unix seconds of its start
    int restarts = 0;
    std::string waiting_for;
    State state = State::kStarting;
    int quick_deaths = 0;      // in a row, soon after a start
    int clean_ends = 0;        // with code 0, though the run went on
    std::string last_cause;    // of its last death
    std::vector<Time> deaths;  // of an independent role, within the window
    bool told_to_end = false;  // for its silence, in this life
    Time started{}, restart_at{};

    bool is_running() const { return process >= 0; }
    bool is_coordinator() const { return peer.role == wire::Role::kCoordinator; }
    std::string_view shown_state() const;  // of status.json
  };
  const std::vector<Role>& roles() const { return roles_; }
  std::string_view state() const;            // of the run, as in status.json
  std::string_view end() const;              // how it ended, as there; empty while it is on
  std::vector<int64_t> processes() const;    // that are running
  bool is_over() const { return is_over_; }  // Finish has been returned

 private:
  using Actions = std::vector<Action>;
  void on(const Started& started, Time now, Actions& actions);
  void on(const StartFailed& failed, Time now, Actions& actions);
  void on(const Added& added, Time now, Actions& actions);
  void on(const NoRoom& full, Time now, Actions& actions);
  void on(const Exited& exited, Time now, Actions& actions);
  void on(const Heard& heard, Time now, Actions& actions);
  void on(const Interrupted& interrupted, Time now, Actions& actions);
  void on(const DirectoryLost& lost, Time now, Actions& actions);
  void on(const GivenUp& given_up, Time now, Actions& actions);
  void on(const Revived& revived, Time now, Actions& actions);
  void on(const Tick&, Time now, Actions& actions);
  void on_death(Role& role, const Ending& ending, Time now, Actions& actions);
  bool too_many_deaths(Role& role, Time now);
  void fail_alone(Role& role, std::string why, Actions& actions);
  std::string label_of(const wire::Peer& peer) const;
  void watch_silence(Time now, Actions& actions);
  void start_next(Time now, Actions& actions);
  void stop_all(Actions& actions);
  void finish(Finish how, Actions& actions);
  void fail(std::string failure, std::optional<wire::Peer> quoted, Actions& actions);

  const Plan plan_;
  std::vector<Role> roles_;
  std::optional<wire::Peer> starting_;  // Start was returned and is not answered
  std::optional<Heard> report_;         // the newest
  Time last_report_{}, informed_since_{}, next_ask_{}, finish_deadline_{}, ending_since_{};
  bool is_interrupted_ = false, is_ending_ = false, is_over_ = false;  // ending: the coordinator has left
  End end_ = End::kDone;
};

}  // namespace tandem::run
