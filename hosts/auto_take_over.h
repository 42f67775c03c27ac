// A host that is the standby of runs goes on with those that ask for it (run.standby_takes_over=majority) when their
// own machine is lost: MajorityWatch (silence.h) decides, here are the sockets to the other hosts and the process of
// `tandem run --take-over`.
//
// That process is in a session of its own and outlives a host that is killed; a host that is drained asks it to end.
// What it says stands in logs/take-over.log of the copy.
//
// Thread safety: none.
#pragma once

#include <sys/types.h>

#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <string>

#include "base/clock.h"
#include "hosts/silence.h"
#include "wire/secret.h"
#include "wire/socket.h"

namespace tandem::hosts {

struct AutoTakeOverSettings {
  fs::path copies;  // the folder with the copies of runs, each named by the run's number
  wire::Secret secret;
  std::function<void(const std::string& line)> say = {};  // what happens, for people
};

class AutoTakeOver {
 public:
  AutoTakeOver(AutoTakeOverSettings settings, zmq::context_t& context, const Clock& clock)
      : settings_(std::move(settings)), context_(context), clock_(clock), heard_(clock.now()) {}

  // The run has opened a session with this host; its config may be another one than before.
  void opened(uint64_t run);
  // The run, or a process of it, has said something.
  void heard(uint64_t run);
  // The run has given this host back.
  void over(uint64_t run) { heard_.over(run, clock_.now()); }
  Silence silence(uint64_t run) const { return heard_.silence(run, clock_.now()); }

  // Asks, hears answers, goes on with what is to be taken over. Returns at once. Comes before what has arrived is read,
  // so that time in which this host did nothing counts as nobody's silence.
  void turn();

  // Asks runs that were taken over to save a checkpoint and end; from now on none is taken over.
  void drain();
  bool is_running() const;  // one of them

 private:
  struct Other {
    std::string address;
    wire::Socket socket;
  };
  struct Watched {
    fs::path copy;
    std::string name;
    std::optional<MajorityWatch> watch;  // nothing: the run does not ask for it, or its copy does not say so yet
    Time look_again{};                   // for the config in the copy
    std::vector<Other> others;           // while they are asked
    pid_t process = -1;                  // that goes on with the run
  };
  void say(const std::string& line) const {
    if (settings_.say) settings_.say(line);
  }
  void forget_one();
  void read_config(Watched& watched) const;
  void turn_of(uint64_t run, Watched& watched);
  void ask(uint64_t run, Watched& watched, const std::vector<std::string>& hosts);
  void hear(Watched& watched);
  Status take_over(Watched& watched);
  void look_at_process(Watched& watched);

  const AutoTakeOverSettings settings_;
  zmq::context_t& context_;
  const Clock& clock_;
  RunsHeard heard_;
  std::map<uint64_t, Watched> runs_;
  bool is_draining_ = false;
};

}  // namespace tandem::hosts
