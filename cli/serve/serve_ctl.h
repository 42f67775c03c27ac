// `tandem serve ctl` and `tandem serve new-key`.
#pragma once

#include "cli/command.h"

namespace tandem::cli {

// Each adds its subcommand to `serve`; what it does where it was the one that was parsed.
Action add_serve_ctl(CLI::App& command);
Action add_serve_new_key(CLI::App& command);

}  // namespace tandem::cli
