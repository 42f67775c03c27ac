#include "envs/foreign/environment_spec.h"

#include <fmt/format.h>

#include <algorithm>
#include <set>

#include "base/text.h"
#include "wire/http_client.h"

namespace tandem::envs {
namespace {

bool is_environment_name(std::string_view name) {
  constexpr size_t kLongest = 32;
  return !name.empty() && name.size() <= kLongest && std::all_of(name.begin(), name.end(), [](char c) {
    return (c >= 'a' && c <= 'z') || (c >= '0' && c <= '9') || c == '-';
  });
}

}  // namespace

Result<std::vector<EnvironmentSpec>> parse_environments(std::span<const std::string> entries) {
  std::vector<EnvironmentSpec> specs;
  std::set<std::string> names;
  for (const auto& entry : entries) {
    const auto wrong = [&](const std::string& why) {
      return fail(Status::invalid(fmt::format("\"{}\" {}", entry, why))
                      .hint("NAME=COMMAND, such as guess=python3 guess.py, or NAME=http://HOST:PORT"));
    };
    const size_t equals = entry.find('=');
    if (equals == std::string::npos) return wrong("has no =");
    EnvironmentSpec spec{.name = entry.substr(0, equals)};
    const std::string what(trim(std::string_view(entry).substr(equals + 1)));
    if (!is_environment_name(spec.name)) return wrong("has no name of small letters, digits and dashes");
    if (!names.insert(spec.name).second) return wrong("has a name that stands twice");
    if (what.empty()) return wrong("names nothing");
    if (what.starts_with("http://") || what.starts_with("https://")) {
      if (const Status status = wire::check_url(what); !status) return wrong(status.message());
      spec.url = what;
      while (spec.url.ends_with('/')) spec.url.pop_back();
    } else {
      spec.command = what;
    }
    specs.push_back(std::move(spec));
  }
  if (specs.size() <= kMostEnvironments) return specs;
  return fail(Status::invalid(fmt::format("{} environments, at most {} can be", specs.size(), kMostEnvironments)));
}

}  // namespace tandem::envs
