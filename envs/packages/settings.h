// Which registries of packages sandboxes have, as a config says it; the same keys in a run and in an evaluation.
#pragma once

#include <string>
#include <vector>

#include "base/config.h"
#include "base/status.h"

namespace tandem::envs {

struct PackageSettings {
  std::string pypi, npm, debian;           // URLs; "auto": the registry of this machine's own tool; empty: none
  std::vector<std::string> debian_suites;  // "SUITE COMPONENT..." each; empty with "auto": those of this machine
  std::string debian_keyring = "/usr/share/keyrings/debian-archive-keyring.gpg";  // empty: signatures are not checked
  std::vector<std::string> file_hosts;  // beside those of the registries, HOST or HOST:PORT
  std::string before;                   // a date; empty: none
  std::string lock;                     // a file that a run has written; empty: none
  bool offline = false;
  std::vector<std::string> install;  // "pypi NAME", "npm NAME", "debian NAME"
  int file_mb = 1024, cache_mb = 20480;
  double seconds = 0;  // of a fetch; 0: nine tenths of a call's limit

  bool any() const { return !pypi.empty() || !npm.empty() || !debian.empty(); }
  friend bool operator==(const PackageSettings&, const PackageSettings&) = default;
};

// The keys env.packages.*, bound to `settings`.
void add_package_fields(Schema& schema, PackageSettings& settings);

// All mistakes, each with its key; empty if there are none. Does not use the network.
std::vector<std::string> package_mistakes(const PackageSettings& settings, double call_seconds);

// The settings that affect which packages an episode can install; null where there are no registries.
Json package_identity(const PackageSettings& settings);

}  // namespace tandem::envs
