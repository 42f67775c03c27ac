// The record of a sample: one attempt of a model at one task, from its beginning to its verdict. A value.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "base/behaviour.h"
#include "base/json.h"
#include "eval/work_size.h"
#include "rollout/books/outcome.h"

namespace tandem::eval {

// Seconds of processors; nothing where they are not known.
struct ComputeUse {
  std::optional<double> sandbox_cores;            // by calls in sandboxes, setup and tests included
  std::optional<double> model_cores, model_gpus;  // by the model's passes
  // What nothing has used yet.
  static ComputeUse none() { return {0, 0, 0}; }
  // A sum is known where both parts are.
  ComputeUse& operator+=(const ComputeUse& other);
  // Of sandboxes and model together.
  std::optional<double> cores() const;
  friend bool operator==(const ComputeUse&, const ComputeUse&) = default;
};

struct SampleResult {
  std::string task;
  int sample = 0;   // from 0
  int attempt = 1;  // those before it failed for reasons that are not the model's
  rollout::Outcome outcome = rollout::Outcome::kCancelled;
  double reward = 0;  // of one with a verdict
  std::string why;    // of a verdict that is no pass, or of none
  double began = 0;   // unix seconds
  double seconds = 0;
  int turns = 0, tool_calls = 0;
  uint64_t prompt_tokens = 0, completion_tokens = 0;  // of all turns, as far as they are known
  std::string end;                                    // how the agent ended: "answered"
  std::string transcript;                             // path of the file in the folder; empty: none
  // The model that answered according to the server, where it is not a version of the requested one; else empty.
  std::string answered_as = {};
  ComputeUse use = {};  // of all attempts
  Behaviour behaviour;
  // Fields of `behaviour`, by name, that the version that ran the sample did not count; they are 0.
  std::vector<std::string> not_counted = {};
  std::optional<WorkSize> diff = {};  // of one with a verdict; nothing where it cannot be had
  std::vector<std::string> flags;     // what looks like a cheat (eval/cheats.h)

  bool has_verdict() const { return rollout::is_of_policy(outcome); }
  bool passed() const { return has_verdict() && reward >= 1; }
  uint64_t tokens() const { return prompt_tokens + completion_tokens; }
  friend bool operator==(const SampleResult&, const SampleResult&) = default;
};

// A line of episodes.jsonl, and the entry of results.json, which leaves the task's name out.
Json to_json(const SampleResult& sample);
Result<SampleResult> sample_from_json(const Json& json);

}  // namespace tandem::eval
