#include <array>
#include <span>

#include "cli/command.h"

namespace tandem::cli {

Action add_import(CLI::App&);
Action add_render(CLI::App&);
Action add_tokenize(CLI::App&);
Action add_version(CLI::App&);

std::span<const Command> commands() {
  static constexpr std::array kCommands = {
      Command{"import", "Turn a GGUF file into a Hugging Face directory", add_import},
      Command{"render", "Turn messages into text and token ids by the model's chat template; JSON Lines", add_render},
      Command{"tokenize", "Turn text into token ids, or ids into text; JSON Lines", add_tokenize},
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
