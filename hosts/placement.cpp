#include "hosts/placement.h"

namespace tandem::hosts {
namespace {

bool has_room(const Machine& machine, wire::Role role, const Needs& needs) {
  if (!machine.takes_roles) return false;
  const auto need_of = [&](wire::Role each) {
    const auto found = needs.find(each);
    return found == needs.end() ? uint64_t{0} : found->second;
  };
  if (machine.memory_bytes == 0) return true;
  uint64_t used = need_of(role);
  for (const auto& [each, count] : machine.roles) used += need_of(each) * static_cast<uint64_t>(count);
  return used <= machine.memory_bytes;
}

}  // namespace

std::optional<size_t> place(wire::Role role, size_t own, std::span<const Machine> machines, const Needs& needs) {
  if (own < machines.size() && has_room(machines[own], role, needs)) return own;
  const auto count = [&](size_t i) {
    const auto found = machines[i].roles.find(role);
    return found == machines[i].roles.end() ? 0 : found->second;
  };
  std::optional<size_t> best;
  for (size_t i = 0; i < machines.size(); ++i) {
    if (has_room(machines[i], role, needs) && (!best || count(i) < count(*best))) best = i;
  }
  return best;
}

}  // namespace tandem::hosts
