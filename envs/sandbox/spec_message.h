// Encodes the part of a SandboxSpec that the first process needs.
#pragma once

#include <string>
#include <string_view>

#include "base/status.h"
#include "envs/sandbox/sandbox.h"

namespace tandem::envs {

// Limits, the bound folder, links, open hosts and the environment; not what the host alone needs (tools, time limits,
// the holder), nor layers.
std::string encode(const SandboxSpec& spec);
// kCorrupt where it is none.
Result<SandboxSpec> decode_spec(std::string_view bytes);

}  // namespace tandem::envs
