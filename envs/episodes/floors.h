// Scripted baselines on the same tasks, as a reference for learning curves.
#pragma once

#include <cstdint>
#include <span>
#include <string_view>

#include "envs/episodes/episode.h"

namespace tandem::envs {

enum class Floor : uint8_t {
  kNothing,      // answers with nothing at once
  kRandomCall,   // one random valid call, then a random word of the instruction
  kRegexScript,  // regular expressions over the instruction, written against the training wordings
};
std::span<const Floor> floors();
std::string_view to_string(Floor floor);

// Plays one episode of the task and grades it. The policies see what a model sees: file names and instruction.
Result<Grade> play_floor(Floor floor, const Task& task, SandboxBackend& backend);

}  // namespace tandem::envs
