// The identity of a run, and the socket paths of its processes on the machine that it was started on.
//
// A run has a number, drawn at random when it is first started and kept in RUN/identity.json. Messages of other runs
// are refused by it, and the folder of its sockets is named after it, so that the next start finds and sweeps what a
// killed run left. A copy of a run directory gets a number of its own when it is first started: two runs never share
// sockets.
//
// A run that was taken over on another machine (run.standby) keeps its number there, and has a higher epoch.
#pragma once

#include <string>

#include "base/file.h"
#include "wire/address.h"
#include "wire/peer.h"

namespace tandem::run {

class RunLayout {
 public:
  // kNotFound where no run was started in `run_dir` yet, kCorrupt where its number cannot be read, kInvalid where the
  // directory is a copy of the one that the number is of.
  static Result<RunLayout> open(const fs::path& run_dir);
  // For the one process that starts the run, and holds its directory (claim_run_dir): draws the number where there is
  // none yet, and where the directory is a copy of another.
  static Result<RunLayout> establish(const fs::path& run_dir);

  // For `home`, the folder that a host has for a run which was started on another machine: gives it the run's number.
  // Its sockets' folder is within it, since several hosts may be on one machine.
  static Status settle(const fs::path& home, uint64_t run_id);

  // For `run_dir`, a copy that takes the run over: it is the run of that number from now on, in that epoch.
  static Status take_over(const fs::path& run_dir, uint64_t run_id, uint64_t epoch);

  // The same for every process of the run.
  uint64_t run_id() const { return run_id_; }
  // 1, and one more for each time that the run was taken over.
  uint64_t epoch() const { return epoch_; }
  fs::path model() const { return run_dir_ / "model"; }
  // The model of algorithm.teacher.path.
  fs::path teacher() const { return run_dir_ / "teacher"; }
  // Outside the run directory, whose path may be longer than a socket's may be: in TMPDIR as it was at the last start,
  // or in /tmp where there is none, or none that a socket can be in.
  fs::path socket_folder() const { return socket_folder_; }
  wire::Address address(const wire::Peer& peer) const {
    return wire::Address::of_path(socket_folder_ / to_string(peer));
  }

 private:
  RunLayout(fs::path run_dir, uint64_t run_id, uint64_t epoch, bool is_home, const std::string& temporary);
  fs::path run_dir_, socket_folder_;
  uint64_t run_id_, epoch_;
};

// A name for people, as environment hosts show it.
std::string name_of_run(const fs::path& run_dir);

}  // namespace tandem::run
