// On which machine a role of a run starts: its own where that can take it, else the one that has the fewest of its
// kind.
//
// Pure.
#pragma once

#include <map>
#include <optional>
#include <span>
#include <string>

#include "wire/peer.h"

namespace tandem::hosts {

struct Machine {
  bool takes_roles = false;   // it is there, and does not drain
  uint64_t memory_bytes = 0;  // that it lends; 0: nobody knows
  std::map<wire::Role, int> roles = {};
};

// Bytes of memory that a process of each role takes; a role without an entry takes none.
using Needs = std::map<wire::Role, uint64_t>;

// The place in `machines`; nothing where none can take it.
std::optional<size_t> place(wire::Role role, size_t own, std::span<const Machine> machines, const Needs& needs);

}  // namespace tandem::hosts
