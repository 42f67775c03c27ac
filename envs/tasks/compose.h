// The one docker-compose.yaml that a sandbox can stand in for: a single service that is built from the Dockerfile
// beside it and waits.
#pragma once

#include <string>

#include "base/file.h"
#include "envs/tasks/mistakes.h"

namespace tandem::envs {

// Adds the variables that `file` sets for `service` ("client" of Terminal-Bench, "main" of Harbor) to `exports`,
// commands for bash. What it says of sizes, of names and of how it is started says nothing. Everything that asks for
// more than a sandbox is (services, networks, ports, volumes but those of logs) is added to `mistakes`, by name and
// line.
void read_compose(const fs::path& file, const std::string& service, std::string& exports, Mistakes& mistakes);

}  // namespace tandem::envs
