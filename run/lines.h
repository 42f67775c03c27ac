// Addresses of a run's processes as seen from this machine: Unix sockets, or, where the run has hosts, tcp with the
// run's key.
//
// Coordinator and trainer of a run with hosts have fixed addresses. All others listen at a port that is free, and say
// which when they introduce themselves.
//
// Thread safety: none needed; a value.
#pragma once

#include <optional>
#include <string>

#include "run/layout.h"
#include "wire/secret.h"

namespace tandem::run {

// The addresses that a machine of a run with hosts must know. Stored beside the key in the sockets' folder.
struct Wiring {
  std::string host;         // this machine's name in the run's directory
  std::string ip;           // where processes here listen
  std::string coordinator;  // tcp://..
  std::string trainer;      // the first rank's
};

// Names within the folder of sockets.
inline constexpr const char *kWiringFile = "wiring.json", *kRunKeyFile = "run.key";

std::string wiring_text(const Wiring& wiring);

class Lines {
 public:
  // kCorrupt where the run's wiring cannot be read.
  static Result<Lines> of(const RunLayout& layout);

  // The address at which a process of this machine listens; with port *, others learn it from the process.
  std::string listening(const wire::Peer& peer) const;
  // The address of a peer that is known before it introduces itself; empty where only the peer knows it.
  std::optional<wire::Address> known(const wire::Peer& peer) const;
  wire::Address coordinator() const { return *known({wire::Role::kCoordinator, 0}); }
  // The key of connections between processes of the run; null for Unix sockets.
  const wire::Secret* secret() const { return secret_ ? &*secret_ : nullptr; }
  const std::string& host() const { return wiring_.host; }
  bool is_between_machines() const { return secret_.has_value(); }

 private:
  explicit Lines(const RunLayout& layout) : layout_(layout) {}
  RunLayout layout_;
  Wiring wiring_;
  std::optional<wire::Secret> secret_;
};

}  // namespace tandem::run
