// The first process of a sandbox: it serves calls of tools until the socket closes, and with it the whole sandbox ends.
#pragma once

namespace tandem::envs {

// Requests come as frames {id, kind, ...}; each is served by a process of its own, so that calls run at once and
// nothing that a call does can harm the others. Never returns.
[[noreturn]] void serve_sandbox(int socket);

inline constexpr const char* kRestored = "restored";

// Kinds of requests, and their fields after the id.
enum class RequestKind : unsigned {
  kCall,      // tool name, arguments as JSON, output limit, time limit in milliseconds, tools that may be called with
              // commas between them -> outcome as JSON
  kPut,       // files -> empty, or why not
  kSnapshot,  // -> why not, or empty; workspace, temporary folder, session
  kRestore,   // workspace, temporary folder, session -> kRestored, or why not
  kCollect,   // -> complete, files; everything else that runs is ended first
};

}  // namespace tandem::envs
