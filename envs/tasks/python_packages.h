// Packages that `pip install` in a script would install, as names to look up on this machine.
//
// Pure functions, but for python_package_is_there(). Thread safety: all of it.
#pragma once

#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace tandem::envs {

// Packages that one command installs: "pandas==2.3.2", "uvicorn[standard]>=0.30", as given. Nothing where it is another
// command, or takes packages from files, addresses and other indexes.
std::optional<std::vector<std::string>> python_packages_of(std::string_view command);

// Whether it is such a name, with extras and versions, and no option, address, path or marker.
bool is_python_package(std::string_view requirement);

// Whether this machine's python3 has the package, in any version: those of images are not this machine's either.
bool python_package_is_there(std::string_view requirement);

}  // namespace tandem::envs
