// The one docker-compose.yaml that a sandbox can stand in for: a single service that is built from the Dockerfile
// beside it and waits.
#pragma once

#include <string>

#include "base/file.h"
#include "envs/tasks/dockerfile.h"
#include "envs/tasks/mistakes.h"

namespace tandem::envs {

struct Composed {
  std::string exports;  // commands for bash that set the variables of the service
  BuildInputs inputs;
};

// What `file` says of `service` ("client" of Terminal-Bench, "main" of Harbor). What it says of sizes, of names and of
// how it is started says nothing. Everything that asks for more than a sandbox is (services, networks, ports, volumes
// but those of logs) is added to `mistakes`, by name and line. Merge keys ("<<") are followed.
Composed read_compose(const fs::path& file, const std::string& service, Mistakes& mistakes);

// built_image of built_image.h, with a mistake where `composed` has it built with more than its Dockerfile.
std::string built_image_by(const fs::path& folder, const Composed& composed, Mistakes& mistakes);

}  // namespace tandem::envs
