// Algorithms of single kinds of task, as a config writes them: `algorithm.kinds`, a line for each part.
//
// Thread safety: pure functions.
#pragma once

#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "base/status.h"
#include "trainer/learn/algorithm.h"
#include "trainer/learn/algorithm_config.h"

namespace tandem::trainer {

// The name in metrics of the part for kinds that no line names.
inline constexpr const char* kOtherKinds = "others";

// Sets algorithm.parts from lines such as "bug,rename=gspo clip_high=0.0004 kl.estimator=k3 weight=2": kinds, a name
// that sets the defaults, and keys of the `algorithm` section that override them. `weight` (1) is of the part's loss.
// The teacher is that of `algorithm`. Numbers have the limits of the section, and its -1 for the algorithm's own.
// kInvalid names the line and the mistake.
Status set_parts(std::span<const std::string> lines, Algorithm& algorithm);

// The keys that one such line may have.
struct PartKeys {
  AlgorithmConfig config;          // what they say; the usual values elsewhere
  std::vector<std::string> given;  // "algorithm.clip_high", in the order of the section
};

PartKeys keys_of_part(std::string_view line);

}  // namespace tandem::trainer
