// The process of `tandem host`: lends this machine to one run after another.
//
// This is the shell: session.h decides about processes, store.h keeps files, and the launcher starts roles as children.
// One run at a time; another one is refused by name. A run that says nothing for kLeaseSeconds has given the machine
// back: its processes are ended and its home is removed. So they are when the host ends, in whatever way.
#pragma once

#include <atomic>
#include <functional>
#include <string>

#include "base/clock.h"
#include "hosts/store.h"
#include "wire/secret.h"

namespace tandem::hosts {

inline constexpr double kLeaseSeconds = 20;

struct LenderSettings {
  std::string address;  // tcp://ADDRESS:PORT, port * for one that is free
  wire::Secret secret;
  std::string version;        // of the program
  uint32_t cores = 1;         // that runs are told of
  uint64_t memory_bytes = 0;  // the same
  bool once = false;          // returns when a run has said that it is over
  double drain_seconds = 90;  // for processes that were asked to end
  fs::path store;             // folder of the store: epochs of runs are kept there, and copies of runs
  std::string key;            // file with the secret
  // The numerics_id of this machine for a weight format; kInvalid for an unknown format.
  std::function<Result<std::string>(const std::string& weights)> numerics_id;
  // Whether roles can work in a home that is settled, on this machine. May take some seconds.
  std::function<Status(const fs::path& home)> check_home;
  std::function<void(const std::string& address)> on_address = {};  // where it listens
  std::function<void(const std::string& line)> say = {};            // what happens, for people
};

// Until the first run is over, where that is asked for, or until `interrupts`: with the first it starts nothing more,
// asks its processes to end, and returns when they have and the run knows, at the latest after drain_seconds; with the
// second it ends them at once. kUnavailable where the address cannot be had.
Status lend(const LenderSettings& settings, Store store, const Clock& clock, const std::atomic<int>& interrupts);

}  // namespace tandem::hosts
