// The environments of somebody else's that a run has, and attempts at their tasks.
//
// A program plays several episodes at once; of each environment a few of them run. One that failed to answer is let go
// of, and the episodes that it had fail with it; another one is started for those that follow.
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
  size_t programs = 2;         // of each environment that is a command
  size_t most_episodes = 256;  // at once, of each environment
  size_t output_limit = 2000;  // bytes of an observation that the model is shown
};

class ForeignEnvironments {
 public:
  explicit ForeignEnvironments(ForeignSettings settings) : settings_(std::move(settings)) {}
  ForeignEnvironments(const ForeignEnvironments&) = delete;

  bool has(const std::string& kind) const { return find(kind) != nullptr; }

  // Begins an attempt at the task of this seed. Errors name the environment: kExhausted where it has most_episodes
  // attempts, else those of EnvironmentLine::ask. One whose program another attempt broke begins in the next program.
  Result<std::unique_ptr<Attempt>> open(const TaskSpec& spec);

  // Whether each can be begun and says its state: for who is about to start a run. Errors as open()'s.
  Status probe();

 private:
  class Played;
  struct Program {
    std::shared_ptr<EnvironmentLine> line;
    size_t episodes = 0;
  };
  const EnvironmentSpec* find(const std::string& kind) const;
  Result<std::unique_ptr<Attempt>> begin(const EnvironmentSpec& environment, const TaskSpec& spec);
  Result<std::shared_ptr<EnvironmentLine>> take(const EnvironmentSpec& spec);
  void give_back(const std::string& name, const std::shared_ptr<EnvironmentLine>& line);

  const ForeignSettings settings_;
  std::mutex mutex_;
  std::map<std::string, std::vector<Program>> programs_;  // by environment; those that are not broken
};

}  // namespace tandem::envs
