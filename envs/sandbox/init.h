// The first process of a sandbox: it serves calls of tools until the socket closes, and with it the whole sandbox ends.
#pragma once

#include <string>
#include <vector>

#include "envs/sandbox/files.h"

namespace tandem::envs {

// Requests come as frames {id, kind, ...}; each is served by a process of its own, so that calls run at once and
// nothing that a call does can harm the others. Never returns.
struct ServedSandbox {
  // "NAME=value", in the environment of every command beside the usual ones, or in their place where the names are the
  // same.
  std::vector<std::string> settings;
  Links links = {};
  bool has_network = false;
};
[[noreturn]] void serve_sandbox(int socket, const ServedSandbox& served);

}  // namespace tandem::envs
