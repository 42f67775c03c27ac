#include "envs/sandbox/quiet_network.h"

#include <sched.h>

#include "base/file.h"
#include "envs/sandbox/confine.h"

namespace tandem::envs {
namespace {

constexpr size_t kLargestCounts = 64 << 10;

// Packets of each device, what protocols have done, and what sockets can leave without a packet.
std::string counts() {
  std::string all;
  for (const char* file : {"dev", "snmp", "snmp6", "ip6_flowlabel"})
    all += read_file(std::string("/proc/thread-self/net/") + file, kLargestCounts).value_or("");
  return all;
}

}  // namespace

bool QuietNetwork::ready() {
  if (!possible_) return false;
  if (!unused_.empty() && counts() == unused_) return true;
  possible_ = unshare(CLONE_NEWNET) == 0 && raise_loopback().ok();
  unused_ = possible_ ? counts() : "";
  possible_ = !unused_.empty();
  return possible_;
}

}  // namespace tandem::envs
