// The environments of somebody else's that a run has, and attempts at their tasks.
//
// An attempt has a line of its own while it is on. Lines are kept for the next attempt where all went well; one that
// failed is let go of, with its program.
//
// Thread safety: open() may be called from several threads; what it gives is driven by one thread at a time. It must
// outlive its attempts.
#pragma once

#include <map>
#include <memory>
#include <mutex>
#include <string>
#include <vector>

#include "envs/episodes/attempt.h"
#include "envs/foreign/environment_line.h"

namespace tandem::envs {

struct ForeignSettings {
  std::vector<EnvironmentSpec> environments;
  double seconds = 30;         // for an answer
  size_t most_lines = 64;      // at once, of each environment
  size_t output_limit = 2000;  // bytes of an observation that the model is shown
};

class ForeignEnvironments {
 public:
  explicit ForeignEnvironments(ForeignSettings settings) : settings_(std::move(settings)) {}
  ForeignEnvironments(const ForeignEnvironments&) = delete;

  bool has(const std::string& kind) const { return find(kind) != nullptr; }

  // Begins an attempt at the task of this seed. Errors name the environment: kExhausted where it has most_lines
  // attempts, else those of EnvironmentLine::ask.
  Result<std::unique_ptr<Attempt>> open(const TaskSpec& spec);

  // Whether each can be begun and says its state: for who is about to start a run. Errors as open()'s.
  Status probe();

 private:
  class Played;
  struct Lines {
    size_t open = 0;
    std::vector<std::unique_ptr<EnvironmentLine>> idle;
  };
  const EnvironmentSpec* find(const std::string& kind) const;
  Result<std::unique_ptr<EnvironmentLine>> take(const EnvironmentSpec& spec);
  void give_back(const std::string& name, std::unique_ptr<EnvironmentLine> line, bool is_well);

  const ForeignSettings settings_;
  std::mutex mutex_;
  std::map<std::string, Lines> lines_;
};

}  // namespace tandem::envs
