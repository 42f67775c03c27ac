// Counts why episodes of a run got no reward, by kind of reason, and decides when there were too many to go on.
//
// Reasons that differ in numbers alone are of one kind, shown by the first of it. At most kMostKinds are told apart;
// the rest are counted together.
//
// Thread safety: none.
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <string_view>

#include "base/file.h"
#include "base/json.h"

namespace tandem::rollout {

class Failures {
 public:
  static constexpr size_t kMostKinds = 16;

  // Restores what report() returned. Anything else is ignored.
  static Failures of(const Json& report);
  // Reads a file of what to_file() returned, or of format 1, report() alone. None where it is missing or damaged;
  // kInvalid where it is of another format.
  static Result<Failures> read(const fs::path& path);

  // An attempt at `episode` ended without a reward.
  void failed(std::string_view reason, uint64_t episode);
  // Counts attempts without a reward at episodes that had failed before. A first failure is not counted: all episodes
  // of a lost server fail at once and are tried again elsewhere.
  void failed_again(uint64_t attempts) { again_ += attempts; }
  void scored() { again_ = 0; }

  // [{"reason", "count", "episode"}], the most frequent first; `episode` is the last one.
  Json report() const;
  // {"format", "failures": report()}.
  Json to_file() const;
  uint64_t count() const;

  // Why the run should end: more than `most` attempts in a row have failed again. Empty where `most` is 0.
  std::optional<std::string> verdict(uint64_t most) const;

 private:
  struct Kind {
    std::string reason;
    uint64_t count = 0, last_episode = 0;
  };
  std::map<std::string, Kind> kinds_;  // by what they have in common
  uint64_t again_ = 0;                 // attempts that failed again since the last that was scored
};

}  // namespace tandem::rollout
