// Which tools a command offers: one list of names.
#pragma once

#include <CLI/CLI.hpp>
#include <string>
#include <vector>

#include "base/status.h"

namespace tandem::cli {

// --tools NAME,NAME...
void add_tools_option(CLI::App& command, std::vector<std::string>& names);

// The offered tools, in the order in which models see them; `usual` where no --tools was given. kInvalid for names that
// are none, and for an encoder (or none) that does not fit the list.
Result<std::vector<std::string>> offered_tools(const std::vector<std::string>& names, bool has_encoder,
                                               std::vector<std::string> usual);

}  // namespace tandem::cli
