// Starts the roles of a run that its topology names, keeps them running, and knows what each is doing.
//
// A role that dies is started again; one that falls silent is named, with what it was doing, then ended and started
// again. The supervisor decides nothing about the run: it hears from the coordinator what is going on, tells it to
// finish, and writes RUN/status.json. Every start is counted in RUN/starts.log before it happens, and the process is
// told its number. When the supervisor dies, so do its roles, and the next start sweeps what they left.
//
// Thread safety: none.
#pragma once

#include <map>
#include <string>
#include <vector>

#include "base/clock.h"
#include "run/launcher.h"
#include "run/topology.h"
#include "wire/socket.h"

namespace tandem::run {

class Supervisor {
 public:
  enum class End : uint8_t { kDone, kInterrupted, kFailed };

  // `launcher` and `clock` outlive it.
  Supervisor(const fs::path& run_dir, const RunConfig& config, const Topology& topology, const RunLayout& layout,
             Launcher& launcher, const Clock& clock, int attempt);
  ~Supervisor();  // ends all roles; no socket and no half-written file is left

  // Ends processes, and removes sockets and half-written files, of an earlier life of this run; returns a line for
  // each.
  std::vector<std::string> sweep();

  Status start();

  // One turn of about 100 ms. True while the run is on.
  bool turn();

  // Asks for a checkpoint and a clean end; asked again, ends everything now.
  void interrupt();

  End end() const { return end_; }
  const std::string& failure() const { return failure_; }
  const Json& report() const { return report_; }                    // the coordinator's newest, or empty
  const Json& status() const { return status_; }                    // as in status.json
  std::map<std::string, int> restarts() const;                      // of each role, over all attempts
  double wall_seconds() const;                                      // of all attempts
  const std::vector<std::string>& notes() const { return notes_; }  // what happened, for people; grows

 private:
  struct Role {
    wire::Peer peer;
    int64_t process = -1;  // of the launcher; -1: none
    uint64_t epoch = 0;    // of that process
    double since = 0;
    int restarts = 0;
    int quick_deaths = 0;  // in a row, soon after its start
    Time started{}, restart_at{};
    std::string state = "starting";
    std::string waiting_for;
    std::string name() const { return std::string(to_string(peer.role)); }
    std::string label() const { return to_string(peer); }
    bool is_running() const { return process >= 0; }
    bool is_coordinator() const { return peer.role == wire::Role::kCoordinator; }
  };

  Status spawn(Role& role);
  void reap();
  void on_exit(Role& role, const Ending& ending);
  void watch_silence();
  void end_silent(Role& role, double silent, const std::string& doing);
  void hear();
  void write_status();
  void finish(End end, std::string failure = "");
  void kill_all();
  std::string last_lines(const Role& role) const;
  fs::path log_of(const Role& role) const;

  const fs::path run_dir_;
  const RunConfig config_;
  const RunLayout layout_;
  Launcher& launcher_;
  const Clock& clock_;
  const int attempt_;
  zmq::context_t context_;
  std::optional<wire::Socket> coordinator_;
  std::vector<Role> roles_;
  Json report_ = Json::object(), status_ = Json::object();
  double earlier_seconds_ = 0;  // of attempts before this one, as status.json had them last
  std::map<std::string, int> earlier_restarts_;
  Time constructed_{}, last_report_{}, informed_since_{}, last_watch_{}, last_status_{}, finish_deadline_{},
      ending_since_{};
  bool interrupted_ = false, ending_ = false, over_ = false;
  End end_ = End::kDone;
  std::string failure_;
  std::vector<std::string> notes_;
};

}  // namespace tandem::run
