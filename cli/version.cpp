// `tandem version` and `tandem --version`.
#include <fmt/format.h>

#include "cli/command.h"

namespace tandem::cli {

std::string version_line() { return fmt::format("tandem {}", TANDEM_VERSION); }

Action add_version(CLI::App&) {
  return []() -> Result<int> {
    fmt::print("{}\n", version_line());
    return kDone;
  };
}

}  // namespace tandem::cli
