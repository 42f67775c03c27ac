// Texts as scalars of YAML, for task files that programs write.
//
// Pure functions.
#pragma once

#include <string>

namespace tandem::envs {

// On one line, whatever is in it.
std::string yaml_quoted(const std::string& text);

// A block of lines, for people to read, at the top of the file, with its line end; in quotes where a block cannot hold
// the text.
std::string yaml_block(const std::string& text);

}  // namespace tandem::envs
