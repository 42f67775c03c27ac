// The first process of a sandbox: it serves calls of tools until the socket closes, and with it the whole sandbox ends.
#pragma once

#include <string>
#include <vector>

namespace tandem::envs {

// Requests come as frames {id, kind, ...}; each is served by a process of its own, so that calls run at once and
// nothing that a call does can harm the others. `settings` ("NAME=value") are in the environment of every command
// beside the usual ones, or in their place where the names are the same. Never returns.
[[noreturn]] void serve_sandbox(int socket, const std::vector<std::string>& settings);

}  // namespace tandem::envs
