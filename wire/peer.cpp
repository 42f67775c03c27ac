#include "wire/peer.h"

#include <fmt/format.h>

#include <array>
#include <charconv>

namespace tandem::wire {
namespace {

constexpr std::array<std::string_view, 6> kNames = {"supervisor", "coordinator", "trainer", "rollout", "env", "relay"};

}  // namespace

std::string_view to_string(Role role) { return kNames[static_cast<size_t>(role)]; }

Result<Role> role_named(std::string_view name) {
  for (size_t i = 0; i < kNames.size(); ++i) {
    if (kNames[i] == name) return static_cast<Role>(i);
  }
  return fail(
      Status::invalid(fmt::format("\"{}\" is not a role; expected {}", name.substr(0, 40), fmt::join(kNames, ", "))));
}

std::string to_string(const Peer& peer) { return fmt::format("{}-{}", to_string(peer.role), peer.rank); }

Result<Peer> parse_peer(std::string_view text) {
  const auto dash = text.find('-');
  Peer peer;
  const auto role = role_named(text.substr(0, dash));
  if (role && dash != std::string_view::npos) {
    peer.role = *role;
    const std::string_view digits = text.substr(dash + 1);
    const auto [end, error] = std::from_chars(digits.data(), digits.data() + digits.size(), peer.rank);
    // Written one way only: "rollout-01" would be a second name of the same peer.
    if (error == std::errc() && peer.rank >= 0 && peer.rank <= kMaxRank && to_string(peer) == text) return peer;
  }
  return fail(Status::invalid(fmt::format("\"{}\" is not a peer; expected ROLE-RANK", text.substr(0, 40))));
}

}  // namespace tandem::wire
