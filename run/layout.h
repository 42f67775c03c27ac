// Where the parts of a run find each other: addresses and folders, all from the run directory's path.
#pragma once

#include <string>

#include "base/file.h"
#include "run/config.h"

namespace tandem::run {

class RunLayout {
 public:
  explicit RunLayout(const fs::path& run_dir);

  // The same for every process of the run; other runs' messages are refused by it.
  uint64_t run_id() const { return run_id_; }
  // For people; hosts of environments show it.
  std::string name() const { return run_dir_.filename().string(); }
  fs::path model() const { return run_dir_ / "model"; }
  // Sockets lie outside the run directory, whose path may be longer than a socket's may be. The folder's name follows
  // from the run directory, so the next start finds and sweeps what a killed run left.
  fs::path socket_folder() const { return socket_folder_; }
  std::string address(const std::string& role) const { return "ipc://" + (socket_folder_ / role).string(); }

 private:
  fs::path run_dir_, socket_folder_;
  uint64_t run_id_;
};

}  // namespace tandem::run
