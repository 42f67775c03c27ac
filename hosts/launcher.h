// The launcher of a run with hosts: starts roles on the machines that are lent to it, and what belongs to this machine
// here.
//
// This is the shell: a Line to each host decides what is asked, placement.h where a role starts; here are the sockets,
// the files that are sent, and the logs that come back into the run's own folder. Everything that is sent goes over
// connections with the key of run.key; the roles speak with each other under a key of their own, which is made for each
// attempt and travels over those connections.
//
// Thread safety: none.
#pragma once

#include <map>
#include <memory>
#include <string>
#include <vector>

#include "base/clock.h"
#include "hosts/line.h"
#include "hosts/placement.h"
#include "hosts/run_listener.h"
#include "run/launcher.h"
#include "run/lines.h"
#include "run/topology.h"

namespace tandem::hosts {

struct LauncherSettings {
  fs::path run_dir;
  run::RunConfig config;
  run::Topology topology;
  run::RunLayout layout;
  std::string version;      // of the program
  std::string numerics_id;  // of this machine, in the run's format of weights
  Needs needs;              // of memory
  std::string holder = {};  // where the run was taken over, for people
};

class HostLauncher final : public run::Launcher {
 public:
  HostLauncher(LauncherSettings settings, const Clock& clock);
  ~HostLauncher() override;  // gives the hosts back, and waits some seconds for them to say so

  // Finds every host, sends what it lacks, and waits until all are up. The run's folder of sockets has its wiring then.
  // kUnfit, naming the host, where one cannot be reached, has another key or version, or refuses. `progress` is told
  // what is being sent.
  Status prepare(const std::function<void(const std::string&)>& progress);

  Result<int64_t> start(const run::Job& job) override;
  std::vector<run::Ending> poll() override;
  void end(int64_t process, run::EndKind kind) override;
  void await(int64_t process) override;
  std::string no_room_for(const wire::Peer& peer) const override;
  run::Where where(int64_t process) const override;
  // Why this side of the run is to end: a host obeys a later epoch of it. Empty where none does.
  std::string taken_over() const;
  std::vector<std::string> news() override { return std::exchange(news_, {}); }
  Json hosts() const override;
  std::string join_address() const override { return run_listener_ ? run_listener_->address() : ""; }
  std::vector<wire::Peer> more_roles() override { return std::exchange(more_roles_, {}); }

 private:
  struct Host {
    std::string address;
    Line line;
    wire::Socket socket;
    std::string ip, own_ip;
    Time state_since{};
    Line::State last_state = Line::State::kReaching;
    std::vector<wire::Peer> brings = {};  // roles that the run gets with it, once it is up
  };
  struct Remote {
    size_t host = 0;
    wire::Peer peer;
    bool is_moving = false;  // it was asked to end, to start on its own host
  };
  // A machine that listens at the address; its place in hosts_, which it takes or begins.
  Status connect(const std::string& address, size_t index);
  // While the run is on. A host that joins brings as many rollouts as others have, and an environment server.
  Status join(const std::string& address);
  Status leave(const std::string& name);
  wire::Peer next_of(wire::Role role);
  Status choose_addresses();
  Status await_hosts(const std::function<void(const std::string&)>& progress);
  Result<std::vector<HomeText>> texts_for(size_t host, const fs::path& home) const;
  void pump();
  void carry_out(Host& host, Line::Turn turn);
  void send(Host& host, const Request& request);
  std::optional<size_t> choose(const wire::Peer& peer) const;  // nothing: no host can take it
  bool belongs_here(const wire::Peer& peer) const;
  // The place in hosts_ of a role's own host; hosts_.size() where it has none.
  size_t own_host(const wire::Peer& peer) const;
  // Asks roles to end that are elsewhere though their own host has been up for some time: they start there again.
  void bring_back();

  const LauncherSettings settings_;
  const Clock& clock_;
  const uint64_t session_;
  std::optional<wire::Secret> secret_;  // of run.key
  run::LocalLauncher local_;
  zmq::context_t context_;
  Bundle bundle_;
  std::vector<std::unique_ptr<Host>> hosts_;
  std::string ip_, key_text_, coordinator_, trainer_;
  std::vector<FileDescriptor> reserved_;  // ports of coordinator and trainer, while the run is on
  std::map<int64_t, Remote> remote_;      // processes on hosts
  fs::path logs_;                         // where those of this attempt are
  int64_t last_process_;
  std::optional<RunListener> run_listener_;
  std::map<wire::Peer, size_t> brought_;  // roles of hosts that joined, with their hosts
  std::vector<wire::Peer> more_roles_;
  std::vector<run::Ending> endings_;
  std::vector<std::string> news_;
};

}  // namespace tandem::hosts
