#include "envs/network/proxy_request.h"

#include <fmt/format.h>

#include <algorithm>
#include <charconv>
#include <set>
#include <vector>

#include "base/text.h"

namespace tandem::envs {
namespace {

constexpr size_t kLongestMethod = 32;
constexpr std::string_view kScheme = "http://";

Status wrong(std::string why) { return Status::invalid(std::move(why)); }

bool is_token(std::string_view text) {
  return !text.empty() && std::all_of(text.begin(), text.end(), [](char c) {
    return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') ||
           std::string_view("!#$%&'*+-.^_`|~").find(c) != std::string_view::npos;
  });
}

std::string in_small_letters(std::string_view text) {
  std::string small(text);
  for (char& c : small) c = c >= 'A' && c <= 'Z' ? static_cast<char>(c - 'A' + 'a') : c;
  return small;
}

template <typename Number>
bool read_number(std::string_view text, Number& number) {
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), number);
  return !text.empty() && error == std::errc() && end == text.data() + text.size();
}

// "HOST", "HOST:PORT", "[ADDRESS]:PORT".
Status read_authority(std::string_view authority, std::optional<uint16_t> usual_port, ProxyRequest& request) {
  if (authority.find('@') != std::string_view::npos) return wrong("a name or password in the address is not taken");
  std::string_view host = authority, port;
  const size_t bracket = authority.rfind(']'), colon = authority.rfind(':');
  const bool has_port = colon != std::string_view::npos && (bracket == std::string_view::npos || colon > bracket);
  if (has_port) {
    host = authority.substr(0, colon);
    port = authority.substr(colon + 1);
  }
  if (host.starts_with('[') && host.ends_with(']')) {
    host = host.substr(1, host.size() - 2);
  } else if (host.find_first_of("[]:") != std::string_view::npos) {
    return wrong("the address of the host is not one");
  }
  if (host.empty()) return wrong("the request names no host");
  request.host = host;
  if (!has_port && !usual_port) return wrong("CONNECT needs a port behind the host");
  if (!has_port) {
    request.port = *usual_port;
  } else if (!read_number(port, request.port) || request.port == 0) {
    return wrong("the port is no number from 1 to 65535");
  }
  return {};
}

struct Field {
  std::string_view name, value;
};

Result<std::vector<Field>> read_fields(std::string_view lines) {
  std::vector<Field> fields;
  while (!lines.empty()) {
    const size_t end = lines.find("\r\n");
    if (end == std::string_view::npos) return fail(wrong("a line of the request does not end as it should"));
    const auto line = lines.substr(0, end);
    lines.remove_prefix(end + 2);
    const size_t colon = line.find(':');
    if (colon == std::string_view::npos || !is_token(line.substr(0, colon)))
      return fail(wrong("a field of the request has no name"));
    const auto value = trim(line.substr(colon + 1));
    const bool printable =
        std::all_of(value.begin(), value.end(), [](char c) { return c == '\t' || (c >= ' ' && c != 0x7f) || c < 0; });
    if (!printable) return fail(wrong("a field of the request has control characters in it"));
    fields.push_back({line.substr(0, colon), value});
    if (fields.size() > kMostProxyFields)
      return fail(wrong(fmt::format("the request has more than {} fields", kMostProxyFields)));
  }
  return fields;
}

// How much follows, and which fields stay behind.
Status read_body_length(const std::vector<Field>& fields, ProxyRequest& request) {
  bool has_length = false, has_chunks = false;
  for (const auto& field : fields) {
    const auto name = in_small_letters(field.name);
    if (name == "content-length") {
      uint64_t length = 0;
      if (has_length || !read_number(field.value, length)) return wrong("the length of the request is not one number");
      request.body_bytes = length;
      has_length = true;
    } else if (name == "transfer-encoding") {
      if (has_chunks || in_small_letters(field.value) != "chunked")
        return wrong("the only transfer encoding that goes on is chunked");
      request.body_bytes.reset();
      has_chunks = true;
    }
  }
  return has_length && has_chunks ? wrong("the request has a length and chunks") : Status();
}

// Fields that are between us and who asks, by RFC 9110 section 7.6.1, and those that the connection names.
std::set<std::string> left_behind(const std::vector<Field>& fields) {
  std::set<std::string> names = {"host", "connection", "proxy-connection",    "keep-alive",
                                 "te",   "upgrade",    "proxy-authorization", "proxy-authenticate"};
  for (const auto& field : fields) {
    if (in_small_letters(field.name) != "connection") continue;
    for (const auto name : split(field.value, ',')) names.insert(in_small_letters(trim(name)));
  }
  // They say where the request ends, whatever somebody says of them; and of the connection itself no field is named.
  for (const char* name : {"content-length", "transfer-encoding", "close"}) names.erase(name);
  return names;
}

}  // namespace

namespace {

struct Head {
  std::string_view method, target, version;
  std::vector<Field> fields;
};

Result<Head> read_head(std::string_view head) {
  if (head.size() > kLargestProxyHead)
    return fail(wrong(fmt::format("the head of a request has more than {} bytes", kLargestProxyHead)));
  if (!head.ends_with("\r\n\r\n")) return fail(wrong("the request has no end"));
  head.remove_suffix(2);
  const size_t line_end = head.find("\r\n");
  const auto line = head.substr(0, line_end);
  const auto words = split(line, ' ');
  const bool printable = std::all_of(line.begin(), line.end(), [](char c) { return c >= ' ' && c <= '~'; });
  if (!printable || words.size() != 3) return fail(wrong("the first line is not METHOD ADDRESS HTTP/1.1"));
  const auto method = words[0], version = words[2];
  if (!is_token(method) || method.size() > kLongestMethod) return fail(wrong("the method of the request is not one"));
  if (version != "HTTP/1.1" && version != "HTTP/1.0") return fail(wrong("the request is not of HTTP/1.1 or HTTP/1.0"));
  auto fields = TRY(read_fields(head.substr(line_end + 2)));
  return Head{method, words[1], version, std::move(fields)};
}

}  // namespace

bool asks_proxy_itself(std::string_view head) {
  const auto line = head.substr(0, head.find("\r\n"));
  const size_t space = line.find(' ');
  return space != std::string_view::npos && line.substr(space + 1).starts_with('/');
}

Result<PackageRequest> parse_package_request(std::string_view head) {
  const auto [method, target, version, fields] = TRY(read_head(head));
  if (method != "GET" && method != "HEAD")
    return fail(wrong("registries of packages can be read here, and nothing else: GET or HEAD"));
  PackageRequest request{.method = std::string(method), .path = std::string(target), .accept = {}};
  for (const auto& field : fields) {
    const auto name = in_small_letters(field.name);
    if (name == "accept") request.accept = field.value;
    if (name == "transfer-encoding" || (name == "content-length" && field.value != "0"))
      return fail(wrong("a request for a package has no body"));
  }
  return request;
}

Result<ProxyRequest> parse_proxy_request(std::string_view head) {
  const auto [method, target, version, fields] = TRY(read_head(head));
  ProxyRequest request;
  request.method = method;
  if (request.method == "CONNECT") {
    TRY(read_authority(target, std::nullopt, request));
    request.tunnel = true;
    return request;
  }
  if (in_small_letters(target.substr(0, kScheme.size())) != kScheme)
    return fail(wrong("this is a proxy: it takes http://HOST/PATH, and CONNECT HOST:PORT for everything else"));
  const auto address = target.substr(kScheme.size());
  const size_t path_at = std::min(address.find_first_of("/?#"), address.size());
  const auto authority = address.substr(0, path_at), path = address.substr(path_at);
  if (path.find('#') != std::string_view::npos) return fail(wrong("the address has a fragment (#) in it"));
  TRY(read_authority(authority, uint16_t{80}, request));
  TRY(read_body_length(fields, request));
  request.head = fmt::format("{} {}{} {}\r\nHost: {}\r\n", request.method, path.starts_with('/') ? "" : "/", path,
                             version, authority);
  const auto behind = left_behind(fields);
  for (const auto& field : fields) {
    if (!behind.contains(in_small_letters(field.name)))
      request.head += fmt::format("{}: {}\r\n", field.name, field.value);
  }
  request.head += "Connection: close\r\n\r\n";
  return request;
}

}  // namespace tandem::envs
