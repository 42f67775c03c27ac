// The network requests of a sandbox and their outcomes.
#pragma once

#include <cstdint>
#include <functional>
#include <string>

namespace tandem::envs {

// One request, allowed or not, when it is over. A value.
struct NetworkUse {
  std::string method, host;  // as they were asked for, printable; empty where the request could not be read
  uint16_t port = 0;
  std::string package;              // of a registry of packages: what was asked for, in place of a host
  std::string refused;              // why; empty: allowed
  std::string broken;               // why a package could not be had although it is allowed; empty: no such failure
  std::string cut;                  // why it was ended before both sides were done; empty where they were
  uint64_t sent = 0, received = 0;  // bytes to and from the host
  double seconds = 0;
};

// On one line: "GET example.org:80, 120 bytes out, 3400 in, 0.2 s", "CONNECT a.example:443 refused: not among ...",
// "GET /pypi/simple/six/ refused: ...".
std::string to_string(const NetworkUse& use);

// May be called from several threads at once, and must not wait.
using OnNetworkUse = std::function<void(const NetworkUse&)>;

}  // namespace tandem::envs
