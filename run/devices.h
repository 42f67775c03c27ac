// Which device each trainer and each engine of a run computes on. All from the config.
//
// What trainer and engines compute must be comparable bit by bit, so beside a GPU, whose bits are those of AVX2, a CPU
// that was not given an instruction set takes that one.
#pragma once

#include <vector>

#include "kernels/device.h"
#include "run/config.h"

namespace tandem::run {

struct RoleDevices {
  kernels::Device trainer;                // of every rank
  std::vector<kernels::Device> rollouts;  // of engines, in turn
  const kernels::Device& rollout(int rank) const { return rollouts[static_cast<size_t>(rank) % rollouts.size()]; }
  // Whether an engine on the trainer's machine computes on the trainer's device, a GPU.
  bool is_shared(int rank) const;
};

// `auto` is what this machine has; the others are not looked for. kInvalid names the key that is no device, the two
// whose bits differ, and `auto` where several machines would each mean another.
Result<RoleDevices> devices_of(const RunConfig& config);

// Checks that the devices of this machine exist; kUnfit names the missing one. A host checks its own when a role
// starts.
Status find_devices(const RunConfig& config);

// kInvalid where rollout.sleep_while_training is on, and no engine has a GPU in common with the trainer, or the run is
// one over several machines.
Status check_sleep(const RunConfig& config);

}  // namespace tandem::run
