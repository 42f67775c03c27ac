// Environments of somebody else's, as a config names them.
#pragma once

#include <span>
#include <string>
#include <vector>

#include "base/status.h"

namespace tandem::envs {

// One more kind of task, made and judged by a program or a server. What is asked of it and what it answers stands in
// docs/environments.md.
struct EnvironmentSpec {
  std::string name;     // the kind: 1 to 32 small letters, digits and dashes
  std::string command;  // for /bin/sh, over its standard input and output; or
  std::string url;      // of a server
  friend bool operator==(const EnvironmentSpec&, const EnvironmentSpec&) = default;
};

inline constexpr size_t kMostEnvironments = 16;

// "NAME=COMMAND" or "NAME=http://HOST" each. kInvalid, naming the entry, where one is not that, and for doubled names.
Result<std::vector<EnvironmentSpec>> parse_environments(std::span<const std::string> entries);

}  // namespace tandem::envs
