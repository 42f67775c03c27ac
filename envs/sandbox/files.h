// Files and links of a sandbox, as values that travel.
#pragma once

#include <map>
#include <string>

namespace tandem::envs {

using Files = std::map<std::string, std::string>;  // path relative to the workspace -> content

// Paths that lead elsewhere inside a sandbox: "/app" -> "/workspace".
using Links = std::map<std::string, std::string>;

}  // namespace tandem::envs
