#include "gateway/upstream.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstdlib>
#include <memory>

#include "base/book.h"
#include "base/config.h"
#include "base/text.h"
#include "wire/http_client.h"

namespace tandem::gateway {
namespace {

constexpr uint64_t kMostBytes = uint64_t{1} << 20;
constexpr size_t kLongestKey = 4096;
constexpr double kMostRate = 1e9;

struct Entry {
  UpstreamTerms terms;
  std::vector<std::string> models;
  std::string key_env, key_file;
};

// Behind the host; without a slash at its end.
std::string_view path_of(std::string_view url) {
  const size_t host = url.find("://") + 3;
  const size_t slash = url.find('/', host);
  std::string_view path = slash == std::string_view::npos ? std::string_view() : url.substr(slash);
  while (path.ends_with('/')) path.remove_suffix(1);
  return path;
}

Status check_base(const std::string& url) {
  TRY(wire::check_url(url));
  if (url.find_first_of("?#") != std::string::npos)
    return Status::invalid(fmt::format("\"{}\" is to end before a query: paths are put behind it", url));
  return {};
}

Result<std::string> key_of(const Entry& entry) {
  if (!entry.key_env.empty() && !entry.key_file.empty())
    return fail(Status::invalid(fmt::format("{} has key_env and key_file; one of them says it", entry.terms.name)));
  if (!entry.key_env.empty()) {
    const char* value = getenv(entry.key_env.c_str());
    if (value == nullptr || *value == '\0') {
      return fail(Status::invalid(fmt::format("{}.key_env: the environment has no {}", entry.terms.name, entry.key_env))
                      .hint("export it, or name a file with key_file"));
    }
    return std::string(value);
  }
  if (entry.key_file.empty()) return std::string();
  const std::string text = TRY(read_file(entry.key_file, kLongestKey + 2));
  const std::string key(trim(text));
  if (key.empty() || key.size() > kLongestKey || key.find_first_of(" \t\r\n") != std::string::npos)
    return fail(Status::invalid("must hold one word, the key").at(entry.key_file));
  return key;
}

// "NAME", or "NAME=ITS_NAME_THERE".
Status read_models(const std::vector<std::string>& given, UpstreamTerms& terms) {
  for (const std::string& one : given) {
    const size_t equals = one.find('=');
    const std::string name = one.substr(0, equals);
    const std::string there = equals == std::string::npos ? name : one.substr(equals + 1);
    if (name.empty() || there.empty() || !terms.models.emplace(name, there).second) {
      return Status::invalid(
          fmt::format("{}.models: \"{}\" is not NAME or NAME=ITS_NAME_THERE, or is there twice", terms.name, one));
    }
  }
  return {};
}

}  // namespace

std::optional<std::string> url_of(const UpstreamTerms& terms, std::string_view path) {
  constexpr std::string_view kVersion = "/v1";
  std::string_view base = terms.url;
  while (base.ends_with('/')) base.remove_suffix(1);
  const std::string_view own = path_of(terms.url);
  if (own.ends_with(kVersion)) {
    base.remove_suffix(kVersion.size());
  } else if (!own.empty()) {
    if (!path.starts_with("/v1/")) return std::nullopt;
    path.remove_prefix(kVersion.size());
  }
  return fmt::format("{}{}", base, path);
}

Result<UpstreamTerms> upstream_of(std::string_view given) {
  UpstreamTerms terms;
  const size_t equals = given.find('=');
  if (const size_t scheme = given.find("://"); equals != std::string_view::npos && equals < scheme) {
    terms.rename = given.substr(0, equals);
    if (terms.rename.empty()) return fail(Status::invalid(fmt::format("\"{}\" names no model", given)));
    given.remove_prefix(equals + 1);
  }
  terms.url = given;
  TRY(check_base(terms.url));
  const size_t host = terms.url.find("://") + 3;
  terms.name = terms.url.substr(host, terms.url.find('/', host) - host);
  return terms;
}

Result<std::vector<UpstreamTerms>> read_upstreams(const fs::path& path) {
  Schema schema;
  std::vector<std::unique_ptr<Entry>> entries;
  for (auto& name : TRY(entry_names_in(path, "upstream", kMostUpstreams, kMostBytes))) {
    Entry& e = *entries.emplace_back(std::make_unique<Entry>());
    e.terms.name = name;
    schema.add(name + ".url", e.terms.url, "Where it is, such as http://10.0.0.1:8000 or https://HOST/v1")
        .add(name + ".models", e.models, "Models that it gets, as NAME or NAME=ITS_NAME_THERE; none: all that it has")
        .add(name + ".key_env", e.key_env, "Variable of the environment that holds the key it asks for")
        .add(name + ".key_file", e.key_file, "File that holds that key")
        .add(name + ".slots", e.terms.slots, "Requests that it has at once, at most", 1, 4096)
        .add(name + ".requests_per_minute", e.terms.requests_per_minute, "0: no limit", 0, kMostRate)
        .add(name + ".tokens_per_minute", e.terms.tokens_per_minute, "Of prompts and answers, about; 0: no limit", 0,
             kMostRate);
  }
  TRY(schema.read_alone(path));
  std::vector<UpstreamTerms> upstreams;
  for (const auto& entry : entries) {
    const auto here = [&](Status status) { return fail(std::move(status).at(path.string())); };
    if (entry->terms.url.empty()) return here(Status::invalid(fmt::format("{}.url is missing", entry->terms.name)));
    if (Status status = check_base(entry->terms.url); !status.ok()) return here(std::move(status));
    if (Status status = read_models(entry->models, entry->terms); !status.ok()) return here(std::move(status));
    auto key = key_of(*entry);
    if (!key) return here(key.error());
    entry->terms.key = std::move(*key);
    upstreams.push_back(std::move(entry->terms));
  }
  return upstreams;
}

Status check_upstreams(const std::vector<UpstreamTerms>& upstreams) {
  if (upstreams.empty()) return Status::invalid("there is no upstream");
  if (upstreams.size() > kMostUpstreams)
    return Status::invalid(fmt::format("{} upstreams are given, and {} is the most", upstreams.size(), kMostUpstreams));
  std::vector<std::string> names;
  for (const UpstreamTerms& one : upstreams) {
    if (std::ranges::find(names, one.name) != names.end())
      return Status::invalid(fmt::format("two upstreams are called \"{}\"", one.name)).hint("a book names each");
    names.push_back(one.name);
  }
  return {};
}

}  // namespace tandem::gateway
