// Lines of scripts that could not do their work without a network, which no sandbox has.
//
// Known are the programs that recipes and tests fetch things with, where they stand as a command: what is found is
// surely a use, what is not found may be one.
#pragma once

#include <string>
#include <string_view>

#include "envs/tasks/mistakes.h"

namespace tandem::envs {

// The part of a command line that would use the network: "pip install"; empty where it is not known to.
std::string network_user(std::string_view command);

// The same of a program in Python: what it runs (`subprocess`, `os.system`), pip, and functions that fetch an address.
std::string python_network_user(std::string_view program);

// That it cannot, in words.
std::string why_no_network(std::string_view user);

// Adds a mistake for each line of `script` that uses the network, with the place.
void refuse_network(const std::string& file, std::string_view script, Mistakes& mistakes);

}  // namespace tandem::envs
