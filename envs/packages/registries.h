// The registries of packages that a run names, and what reaches them.
#pragma once

#include <functional>
#include <optional>
#include <stop_token>
#include <string>
#include <vector>

#include "base/clock.h"
#include "envs/packages/settings.h"
#include "envs/packages/url.h"

namespace tandem::envs {

struct Registry {
  Url url;                              // its path ends with a slash
  std::string authorization = {};       // of this machine's own tool, sent to that host alone; never shown
  std::vector<std::string> hosts = {};  // that its files may lie on, its own included
};

struct Registries {
  std::optional<Registry> pypi, npm, debian;
  std::vector<std::string> suites;  // of debian, "SUITE COMPONENT..."
};

// Asks pip, npm and apt of this machine where a setting is "auto". kUnfit where they do not say.
Result<Registries> find_registries(const PackageSettings& settings);

struct FetchLimits {
  Duration whole{};  // of a file, redirects and further tries included
  uint64_t bytes = 0;
};

// GET of a file of the registry. Redirects lead to its hosts alone. Tries again, within the limit, where the registry
// does not answer or says 429 or 5xx. kNotFound: it has no such file; kExhausted: it is larger than `limits.bytes`;
// kUnavailable, kDeadline, kUnfit: it cannot be reached, or answers otherwise. `begin` is called before each try.
Status fetch(const Registry& registry, const Url& url, const std::string& accept, const FetchLimits& limits,
             const std::function<Status()>& begin, const std::function<Status(std::string_view)>& take,
             const std::stop_token& stop);

// Whether files may be fetched from there.
bool is_host_of(const Registry& registry, const Url& url);

}  // namespace tandem::envs
