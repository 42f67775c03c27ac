// Memory of the roles of a run by purpose, as estimated by the code that allocates it.
#pragma once

#include <string>

#include "base/host_memory.h"
#include "base/json.h"
#include "model/config.h"
#include "run/config.h"
#include "run/topology.h"

namespace tandem::run {

// {role: {purpose: bytes}}; of rollouts for each one.
Result<Json> memory_of(const RunConfig& config, const model::ModelConfig& model);

// Memory of the processes of a run on this machine whose device is its CPU; `memory` is memory_of.
struct MemoryNeed {
  uint64_t all = 0, largest = 0;  // bytes; of one process
};
MemoryNeed memory_need_here(const Json& memory, const Topology& topology);

// Warns that the need exceeds the memory of this machine, with the keys that reduce it; empty where it fits. A warning
// only, since the estimate is an upper bound.
std::string memory_warning_of(const MemoryNeed& need, const MemoryRoom& room, uint64_t address_space);

}  // namespace tandem::run
