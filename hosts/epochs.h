// Which epoch of each run a host has obeyed last, kept over its own restarts: whoever is of an older one was replaced
// by a take-over, and is refused. Runs that were never taken over are not written down.
//
// Thread safety: none; one host a file.
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <string>

#include "base/file.h"
#include "hosts/protocol.h"

namespace tandem::hosts {

class Epochs {
 public:
  static constexpr size_t kMostRuns = 1000;  // the oldest go

  // kCorrupt where the file cannot be read.
  static Result<Epochs> open(const fs::path& file);

  // Nothing where the epoch may give orders, which is on disk then; else the later one. An error where it could not be
  // written down.
  Result<std::optional<Fenced>> admit(uint64_t run, uint64_t epoch, const std::string& holder);

 private:
  struct Known {
    uint64_t epoch = 1, order = 0;
    std::string holder;
  };
  Status write() const;
  fs::path file_;
  std::map<uint64_t, Known> runs_;
  uint64_t order_ = 0;
};

}  // namespace tandem::hosts
