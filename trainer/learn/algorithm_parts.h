// Algorithms of single kinds of task, as a config writes them: `algorithm.kinds`, a line for each part.
//
// Thread safety: pure functions.
#pragma once

#include <span>
#include <string>

#include "base/status.h"
#include "trainer/learn/algorithm.h"

namespace tandem::trainer {

// Sets algorithm.parts from lines such as "bug,rename=gspo clip_high=0.0004 kl.estimator=k3 weight=2": kinds, a name
// that sets the defaults, and keys of the `algorithm` section that override them. `weight` (1) is of the part's loss.
// The teacher is that of `algorithm`. kInvalid names the line, and what of it cannot be.
Status set_parts(std::span<const std::string> lines, Algorithm& algorithm);

}  // namespace tandem::trainer
