// Requests of the host to the first process of a sandbox, and their answers.
#pragma once

#include <string>
#include <string_view>

namespace tandem::envs {

// The reply where there is nothing else to say; an empty one comes of a process that was killed.
inline constexpr const char* kWorked = "worked";

// Where a server of tools leaves what it writes to its standard error.
inline std::string server_log(std::string_view name) { return std::string("/tmp/").append(name).append(".mcp.log"); }

// Kinds of requests, and their fields after the id.
enum class RequestKind : unsigned {
  kCall,      // tool name, arguments as JSON, output limit, time limit in milliseconds, tools that may be called with
              // commas between them -> outcome as JSON
  kPut,       // files -> kWorked, or why not
  kBegin,     // a file with a tree in it, as pack_tree made it -> kWorked, or why not; the workspace is that tree
  kSnapshot,  // -> why not, or empty; workspace, temporary folder, session
  kRestore,   // workspace, temporary folder, session -> kWorked, or why not; trees that are empty stay as they are
  kSeal,      // -> why not, or empty and the session; the sandbox has ended then
  kCollect,   // -> complete, files; everything else that runs is ended first
  kCollectChanges,  // the manifest of a base comes right behind the frame, as one descriptor -> as kCollect, and
                    // removed
  kFolderChanges,  // first path, most entries, bytes, bytes left (FolderPage); a list of what the folder below held and
                   // holds comes right behind the frame, as one descriptor -> why not, or empty; a part of what is
                   // other (folder_list.h)
  kSourceChanges,  // files that are known -> why not, or empty; what is other (envs/sandbox/sources.h)
  kSourceLines,    // lines of files -> why not, or empty; their texts
  kFingerprint,    // -> a number that is another one where the workspace is (envs/tools/paths.h)
  kStartServer,    // a name, a command; its standard input and output come right behind the frame, as one descriptor
                   // -> kWorked, or why not. It stays in the background
  kExec,           // a program and its limits (exec.h) -> what came of it; ended when the files are collected
  kFreeze,         // -> kWorked; what runs then stops
  kThaw,           // -> kWorked; it goes on
  kCancel,         // of the request that has this id: what it started is ended, and soon it too. No reply of its own
};

}  // namespace tandem::envs
