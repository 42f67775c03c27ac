// Startup of the first process of a sandbox, from its namespaces to its serve loop.
#pragma once

#include <functional>
#include <string>

#include "base/status.h"
#include "envs/sandbox/sandbox.h"

namespace tandem::envs {

// The specification of a sandbox's first process.
struct FirstProcess {
  SandboxSpec spec;
  std::string filter;  // of make_filter
  FileTrees own = {};  // what it writes, where that can be a layer
};

// In that process, which must be the first of its namespace of processes. `begin` says what it is to be and leaves it
// in the root that it is to have; then it gives up all else that it may do, and serves at `socket`. Its first message
// there is "ready", or what went wrong; behind it come, where the spec asks for them, the trees that it writes ("-"
// where they can be no layer) and the socket for the proxy.
[[noreturn]] void confine_and_serve(int socket, const std::function<Result<FirstProcess>()>& begin);

}  // namespace tandem::envs
