// Checks of this machine's support for sandboxes, for `tandem doctor`.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

namespace tandem::envs {

enum class CheckLevel : uint8_t { kOk, kWarning, kFailed };  // kFailed: nothing of a model can be run here

struct Check {
  std::string name;
  CheckLevel level = CheckLevel::kOk;
  std::string found;  // one line
  std::string mend;   // what to do; empty where all is well
};

// Looks, and makes one sandbox to be sure. Takes well under a second; leaves nothing behind.
std::vector<Check> check_machine();

}  // namespace tandem::envs
