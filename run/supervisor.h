// Starts the roles of a run that its topology names, keeps them running, and knows what each is doing.
//
// A role that dies is started again; one that falls silent is named, with what it was doing, then ended and started
// again. This is the shell: supervision.h decides, the launcher and the coordinator's socket carry it out. It decides
// nothing about the run: it hears from the coordinator what is going on, tells it to finish, and writes
// RUN/status.json and its log. Every start is counted in RUN/starts.log before it happens, and the process is told its
// number. When the supervisor dies, so do its roles, and the next start sweeps what they left. A run directory that is
// moved away ends the run at once.
//
// Thread safety: none.
#pragma once

#include <map>
#include <string>
#include <vector>

#include "base/clock.h"
#include "run/launcher.h"
#include "run/supervision.h"
#include "run/topology.h"
#include "wire/socket.h"

namespace tandem::run {

class Supervisor {
 public:
  using End = Supervision::End;

  // `launcher` and `clock` outlive it.
  Supervisor(const fs::path& run_dir, const RunConfig& config, const Topology& topology, const RunLayout& layout,
             Launcher& launcher, const Clock& clock, int attempt);
  ~Supervisor();  // ends all roles; no socket and no half-written file is left

  // Ends processes, and removes sockets and half-written files, of an earlier life of a run; returns a line for each.
  // The caller holds the directory (`claim_run_dir`).
  static std::vector<std::string> sweep(const fs::path& run_dir, const RunLayout& layout);

  Status start();

  // One turn of about 100 ms. True while the run is on.
  bool turn();

  // Whether the run directory is still where it was; where not, the run has failed, and nothing is written there.
  bool holds_directory() const { return holds_directory_; }

  // Another machine has the run directory now: the run has failed, and nothing is written there any more.
  void lose_directory(std::string how);
  // Going on is of no use; the run ends as failed, and says why.
  void give_up(std::string why);

  // Puts a line into the log and the notes.
  void note(std::string text);

  // Asks for a checkpoint and a clean end; asked again by a person, ends everything now.
  void interrupt(Supervision::Interrupted how);

  End end() const { return end_; }
  const std::string& failure() const { return failure_; }
  const Json& report() const { return report_; }                    // the coordinator's newest, or empty
  const Json& status() const { return status_; }                    // as in status.json
  std::map<std::string, int> restarts() const;                      // of each role, over all attempts
  double wall_seconds() const;                                      // of all attempts
  const std::vector<std::string>& notes() const { return notes_; }  // what happened, for people; grows

 private:
  // Steps the machine with an event and with those that come of its actions.
  void apply(Supervision::Event event);
  void perform(const Supervision::Action& action);
  Supervision::Event spawn(const wire::Peer& peer);
  void receive();
  void reap();
  bool await_plan_end();
  void stop(const std::vector<int64_t>& processes);
  void note_failures();
  void write_status();
  void check_directory();
  std::string last_lines(const wire::Peer& peer) const;
  fs::path log_of(const wire::Peer& peer) const;

  const fs::path run_dir_;
  const FileDescriptor directory_;  // itself, wherever it is
  const RunConfig config_;
  const RunLayout layout_;
  Launcher& launcher_;
  const Clock& clock_;
  const int attempt_;
  zmq::context_t context_;
  std::optional<wire::Socket> coordinator_;
  Supervision supervision_;
  Status start_error_;  // of the role that could not be started
  Json report_ = Json::object(), status_ = Json::object();
  double earlier_seconds_ = 0;  // of attempts before this one, as status.json had them last
  std::map<std::string, int> earlier_restarts_;
  Time constructed_{}, last_status_{};
  bool holds_directory_ = true;
  End end_ = End::kDone;
  std::string failure_;
  std::vector<std::string> notes_;
  std::map<std::string, uint64_t> next_failure_note_;  // by reason: the count that is said next
};

}  // namespace tandem::run
