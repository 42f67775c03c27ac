// Where the kernels log to in a process of somebody else's. Private to trainer/torch/ops/.
#pragma once

namespace tandem::torch_ops {

// From now on to stderr. Call it once.
void log_to_stderr();

}  // namespace tandem::torch_ops
