// A server that a gateway hands requests to: one of ours, or any with OpenAI's API.
#pragma once

#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "base/file.h"
#include "base/status.h"

namespace tandem::gateway {

struct UpstreamTerms {
  std::string name;  // in logs, metrics and errors
  std::string url;   // "http://10.0.0.1:8000", "https://HOST/v1"
  // Served name -> its name there. Empty: all that it lists at /v1/models, under its own names.
  std::map<std::string, std::string> models;
  std::string rename;  // the served name of the only model that it lists; empty: its own
  std::string key;     // that it asks for; empty: none. Never shown.
  int slots = 64;      // requests that it has at once, at most
  double requests_per_minute = 0, tokens_per_minute = 0;  // of ours to it; 0: no limit
  // The names of the model of a process of this server (gateway/processes.h), the first of which it is called by. Its
  // answers are passed on as they are, refusals as well. Empty: a server of its own.
  std::vector<std::string> names = {};
  bool is_ours() const { return !names.empty(); }
};

inline constexpr size_t kMostUpstreams = 64;

// Where a request for `path` goes: the path itself behind a URL that is a host, or ends in /v1; behind one with another
// path, such as https://HOST/v1beta/openai, what stands behind /v1. Nothing: such a server has no such path.
std::optional<std::string> url_of(const UpstreamTerms& terms, std::string_view path);

// "[NAME=]URL" of a command line: an upstream called as its host. kInvalid where the URL is none.
Result<UpstreamTerms> upstream_of(std::string_view given);

// A book of upstreams: YAML, a name for each, its url, and what it may (docs/serving.md). Keys come from the
// environment or from files. kInvalid with all mistakes, each with its line.
Result<std::vector<UpstreamTerms>> read_upstreams(const fs::path& path);

// kInvalid for none, too many, or two of one name.
Status check_upstreams(const std::vector<UpstreamTerms>& upstreams);

}  // namespace tandem::gateway
