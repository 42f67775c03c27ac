// Which faults a run is given, and when: a function of a seed.
//
// Pure. Thread safety: belongs to one thread.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "base/random.h"
#include "base/status.h"

namespace tandem::chaos {

enum class Kind : uint8_t {
  kKill,       // a process ends at once
  kStop,       // a process stands still
  kDrop,       // a message is lost
  kDelay,      // a message is late
  kDuplicate,  // a message comes twice
  kCorrupt,    // a message is damaged
  kDisk,       // for a while nothing more can be written by a process that keeps books
};
std::string_view to_string(Kind kind);
std::vector<std::string> kind_names();
Result<Kind> kind_named(std::string_view name);

struct Fault {
  double after = 0;  // seconds since the fault before it
  Kind kind = Kind::kKill;
  uint64_t target = 0;  // of the processes that it may hit, modulo their number
};

class Schedule {
 public:
  // `every`: seconds between faults, on average; they come as a Poisson process. `kinds` is not empty.
  Schedule(uint64_t seed, std::vector<Kind> kinds, double every)
      : random_(derive_seed(seed, "chaos")), kinds_(std::move(kinds)), every_(every) {}
  Fault next();

 private:
  Random random_;
  const std::vector<Kind> kinds_;
  const double every_;
};

}  // namespace tandem::chaos
