// A participant of a run: role and rank, such as "rollout-1".
//
// Values: copy, compare, print.
#pragma once

#include <compare>
#include <cstdint>
#include <string>
#include <string_view>

#include "base/status.h"

namespace tandem::wire {

enum class Role : uint8_t { kSupervisor, kCoordinator, kTrainer, kRollout, kEnv, kRelay };
std::string_view to_string(Role role);  // "rollout"
// kInvalid, with all valid names, for an unknown one.
Result<Role> role_named(std::string_view name);

inline constexpr int kMaxRank = 100'000;

struct Peer {
  Role role = Role::kCoordinator;
  int rank = 0;  // among the processes of its role: 0 to kMaxRank
  friend auto operator<=>(const Peer&, const Peer&) = default;
};
std::string to_string(const Peer& peer);  // "rollout-1": its name on the wire, in logs and in the ledger
// Parses the form that to_string writes; kInvalid for any other.
Result<Peer> parse_peer(std::string_view text);

}  // namespace tandem::wire
