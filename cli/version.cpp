// `tandem version`.
#include <fmt/format.h>

#include "cli/command.h"

namespace tandem::cli {

Action add_version(CLI::App&) {
  return []() -> Result<int> {
    fmt::print("tandem {}\n", TANDEM_VERSION);
    return kDone;
  };
}

}  // namespace tandem::cli
