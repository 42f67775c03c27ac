// What single instructions of a Dockerfile say.
#pragma once

#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace tandem::envs {

using DockerVariables = std::vector<std::pair<std::string, std::string>>;  // names and values, in order

// A value up to the next space, as Docker reads it: quotes are taken off, a backslash takes the next letter as it is.
// A dollar that names no variable has a backslash before it.
std::string docker_value(std::string_view& rest);

// A folder may stand in quotes.
std::string docker_unquoted(const std::string& text);

// Whether a value speaks of a name that stands before it.
bool names_itself(const DockerVariables& pairs);

// What ADD unpacks, by its name.
bool is_docker_archive(std::string_view source);

// Whether /bin/sh of an image is dash, as in those of Debian and Ubuntu and what is made of them.
bool image_has_dash(std::string_view image);

// Whether texts in place are its commands.
bool runs_shell(const std::string& command);

bool runs_python(const std::string& command);

std::string network_user_of_lines(const std::string& command);

// What makes a virtual environment; "" where nothing does.
std::string maker_of_python(const std::string& command);

}  // namespace tandem::envs
