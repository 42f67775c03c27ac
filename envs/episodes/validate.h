// Validates a task for training: the solution scores 1; doing nothing and every cheat score 0; repeatedly.
//
// Thread safety: any number of tasks may be validated at once on one backend.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "base/json.h"
#include "envs/episodes/episode.h"

namespace tandem::envs {

enum class Verdict : uint8_t {
  kPassed,
  kFailed,  // the task is wrong: a person has to change it
  kUnfit,   // this machine lacks what the task needs; nothing is said about the task
  kError,   // the infrastructure failed; again may work
};
std::string_view to_string(Verdict verdict);

struct Validation {
  std::string name, kind, digest;
  int repeats = 0;
  Verdict verdict = Verdict::kPassed;
  std::vector<std::string> findings;  // what is wrong, a sentence each
  double seconds = 0;
  std::string packages = {};  // identity of the registries that were open; empty: none
};

// Plays the solution and nothing `repeats` times each, every cheat once.
Validation validate(const Task& task, SandboxBackend& backend, int repeats, const EpisodeOptions& options = {});

// Plays the task's solution and grades it. kInvalid where the task has none.
Result<Grade> play_solution(const Task& task, SandboxBackend& backend, const EpisodeOptions& options = {});

Json to_json(const Validation& validation);
Result<Validation> validation_from_json(const Json& json);

}  // namespace tandem::envs
