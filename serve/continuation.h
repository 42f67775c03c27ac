// The rest of an answer that began on one version of a model, for another version that goes on with it.
//
// The other version reads the prompt and the tokens that were said, and samples from the next place on with the same
// seed. Pure functions.
#pragma once

#include <span>
#include <vector>

#include "serve/generation.h"

namespace tandem::serve {

// kUnfit names what the request asks for, where no version can begin with it in the middle of an answer.
Status check_continuable(const Generation& generation);

struct RestOfTurn {
  std::vector<int32_t> prompt;  // with what was said
  rollout::TurnRequest request;
};
// What a turn still lacks after `said`: the whole turn where nothing was.
RestOfTurn rest_of(std::span<const int32_t> prompt, const rollout::TurnRequest& turn,
                   std::span<const rollout::SampledToken> said);

}  // namespace tandem::serve
