// Kinds of parallelism of the trainer that are not implemented yet.
#pragma once

#include <array>
#include <string_view>
#include <utility>

#include "run/config.h"

namespace tandem::run {

// Their names below trainer.parallel, and their values in `config`, which outlives them.
inline std::array<std::pair<std::string_view, int*>, 4> kinds_of_parallelism(RunConfig& config) {
  auto& parallel = config.trainer.parallel;
  return {{{"tensor", &parallel.tensor},
           {"expert", &parallel.expert},
           {"context", &parallel.context},
           {"pipeline", &parallel.pipeline}}};
}

}  // namespace tandem::run
