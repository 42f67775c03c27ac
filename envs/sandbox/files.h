// Files and links of a sandbox, as values that travel.
#pragma once

#include <map>
#include <set>
#include <string>

namespace tandem::envs {

// Path relative to the workspace, or an absolute one below a link to kOutside -> content.
using Files = std::map<std::string, std::string>;

// Paths that lead elsewhere inside a sandbox: "/app" -> "/workspace".
using Links = std::map<std::string, std::string>;

// Details of a tree beside the content of its files.
struct TreeDetails {
  Links links;                            // symbolic ones, and what they say
  std::set<std::string> folders;          // with nothing in them
  std::map<std::string, unsigned> modes;  // of files, where neither 644 nor 755; of folders, where not 755
};

// Where links lead whose files are of the task, though they are not in its workspace: "/data" -> "/tmp/outside/data".
inline constexpr const char* kOutside = "/tmp/outside";

}  // namespace tandem::envs
