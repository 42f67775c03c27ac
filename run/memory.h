// How much memory the roles of a run take, by purpose: what the code that takes it says beforehand.
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

// Of the processes of a run on this machine whose device is its CPU; `memory` is memory_of.
struct MemoryNeed {
  uint64_t all = 0, largest = 0;  // bytes; of one process
};
MemoryNeed memory_need_here(const Json& memory, const Topology& topology);

// Why that is more than can be had here, and the keys that make it less; empty where it can be had. A warning, since a
// plan is what roles take at most.
std::string memory_warning_of(const MemoryNeed& need, const MemoryRoom& room, uint64_t address_space);

}  // namespace tandem::run
