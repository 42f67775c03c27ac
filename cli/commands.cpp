#include <array>
#include <span>

#include "cli/command.h"

namespace tandem::cli {

Action add_tools(CLI::App&);
Action add_version(CLI::App&);

std::span<const Command> commands() {
  static constexpr std::array kCommands = {
      Command{"tools", "The agent's tools from a shell: their schemas, and single calls", add_tools},
      Command{"version", "Print the version", add_version},
  };
  return kCommands;
}

int exit_code_of(const Status& status) {
  switch (status.code()) {
    case Code::kOk: return kDone;
    case Code::kInvalid: return kUsage;
    case Code::kUnfit: return kUnfit;
    default: return kFailed;
  }
}

}  // namespace tandem::cli
