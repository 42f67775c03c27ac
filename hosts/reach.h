// Whether a machine listens at an address, asked before a key is tried: a connection with another key is only silent.
#pragma once

#include <string>

#include "base/status.h"
#include "wire/address.h"

namespace tandem::hosts {

struct Reached {
  std::string ip;      // of the host, as text
  std::string own_ip;  // of this machine on the route to it
};

// Connects and hangs up. kNotFound where the name has no address, kUnavailable where nobody listens or nothing comes
// back within `seconds`; each names the address.
Result<Reached> reach(const wire::Address& address, double seconds);

}  // namespace tandem::hosts
