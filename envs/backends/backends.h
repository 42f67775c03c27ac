// Chooses the sandbox backend for every command: own namespaces, else bubblewrap; a container engine for specs with an
// image.
#pragma once

#include <array>
#include <memory>
#include <string>
#include <string_view>

#include "envs/sandbox/sandbox.h"

namespace tandem::envs {

// Values of env.sandbox of a run, and of TANDEM__ENV__SANDBOX in the environment for commands without a config.
inline constexpr std::array kSandboxKinds = {"auto", "namespaces", "bubblewrap"};
inline constexpr const char* kSandboxVariable = "TANDEM__ENV__SANDBOX";

// A backend that has made a sandbox. `label` is shown in the command lines of its processes (the run directory); `kind`
// is one of kSandboxKinds, and what the environment says where it is empty; `engine` is what engine_place takes
// (envs/backends/choosing_backend.h), and is asked for when the first spec has an image. kUnfit, with what is missing
// for each kind that was tried, where this machine cannot isolate; kInvalid for a kind that is none.
Result<std::unique_ptr<SandboxBackend>> start_sandboxes(std::string label = "", std::string_view kind = "",
                                                        const std::string& engine = "");

}  // namespace tandem::envs
