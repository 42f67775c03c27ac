// Parses single instructions of a Dockerfile.
#pragma once

#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "base/status.h"

namespace tandem::envs {

using DockerVariables = std::vector<std::pair<std::string, std::string>>;  // names and values, in order

// As Debian and Docker call the processor of this machine: "amd64".
std::string machine_architecture();

// A path without dots and a slash at its end; `path` may be relative to `folder`.
std::string absolute_path(const std::string& folder, const std::string& path);

// A value up to the next space, or with `has_spaces` to the end, as Docker reads it: quotes are taken off, `escape`
// takes the next letter as it is. What is returned has a backslash before each backslash and each dollar that stands
// for itself; others begin "${". Parameters of a shell ("$1", "$$"), which are not set, are gone. An error where a
// quote has no end.
Result<std::string> docker_value(std::string_view& rest, char escape, bool has_spaces = false);

// A text that stands for itself, in the form of docker_value.
std::string as_docker_value(std::string_view text);

// A text in the form of docker_value in quotes of bash, which replaces what begins with a dollar.
std::string quoted_for_bash(std::string_view value);

// A folder may stand in quotes.
std::string docker_unquoted(const std::string& text);

// Whether a value speaks of a name that stands before it.
bool names_itself(const DockerVariables& pairs);

// Whether ADD unpacks a file of this name.
bool is_docker_archive(std::string_view source);

// Whether /bin/sh of an image is dash, as in those of Debian and Ubuntu and what is made of them.
bool image_has_dash(std::string_view image);

// Whether texts in place are its commands.
bool runs_shell(const std::string& command);

bool runs_python(const std::string& command);

std::string network_user_of_lines(const std::string& command);

// The command that makes a virtual environment; "" for none.
std::string maker_of_python(const std::string& command);

}  // namespace tandem::envs
