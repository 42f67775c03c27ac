#include "envs/packages/url.h"

#include <fmt/format.h>

#include <algorithm>
#include <cctype>

#include "base/text.h"
#include "envs/tools/output.h"

namespace tandem::envs {
namespace {

constexpr size_t kLongestUrl = 4096;

bool is_letter_or_digit(char c) { return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9'); }

Status no_url(std::string_view text, std::string_view why) {
  return Status::invalid(fmt::format("\"{}\" is not a URL such as https://registry.example/simple/: {}",
                                     make_printable(text.substr(0, 200)), why));
}

// Without "." and "..".
Result<std::string> without_dots(std::string_view path) {
  std::string plain;
  const auto query = path.substr(std::min(path.find('?'), path.size()));
  path.remove_suffix(query.size());
  while (!path.empty()) {
    const size_t next = std::min(path.find('/', 1), path.size());
    const auto segment = path.substr(0, next);
    path.remove_prefix(next);
    if (segment == "/..") {
      if (plain.empty()) return fail(Status::invalid("an address leads above its root"));
      plain.resize(plain.rfind('/'));
    } else if (segment != "/.") {
      plain += segment;
      continue;
    }
    if (path.empty()) plain += '/';
  }
  return plain + std::string(query);
}

}  // namespace

Result<Url> Url::parse(std::string_view text) {
  if (text.size() > kLongestUrl) return fail(no_url(text, "it is too long"));
  for (const char c : text) {
    if (c <= ' ' || c > '~' || c == '\\' || c == '"' || c == '<' || c == '>')
      return fail(no_url(text, "it has a character that URLs do not have"));
  }
  Url url;
  for (const char* scheme : {"http", "https"}) {
    if (text.starts_with(std::string(scheme) + "://")) url.scheme = scheme;
  }
  if (url.scheme.empty()) return fail(no_url(text, "it begins with neither http:// nor https://"));
  text.remove_prefix(url.scheme.size() + 3);
  text = text.substr(0, text.find('#'));
  const size_t end = std::min(text.find_first_of("/?"), text.size());
  url.host = text.substr(0, end);
  if (url.host.find('@') != std::string::npos)
    return fail(
        Status::invalid("a URL with a name or password in it would be shown and written down; let this machine's pip "
                        "or npm have them, and say auto"));
  const bool plain = std::ranges::all_of(url.host, [](char c) {
    return is_letter_or_digit(c) || c == '.' || c == '-' || c == ':' || c == '[' || c == ']' || c == '_';
  });
  if (url.host.empty() || url.host.front() == ':' || !plain) return fail(no_url(text, "it has no host"));
  std::ranges::transform(url.host, url.host.begin(),
                         [](unsigned char c) { return static_cast<char>(std::tolower(c)); });
  const std::string usual = url.scheme == "http" ? ":80" : ":443";
  if (url.host.ends_with(usual)) url.host.resize(url.host.size() - usual.size());
  const size_t bracket = url.host.rfind(']');
  const auto ports = std::ranges::count(url.host.substr(bracket == std::string::npos ? 0 : bracket), ':');
  if (ports > 1 || url.host.ends_with(usual) || url.host.empty()) return fail(no_url(text, "its port is not one"));
  url.path = text.substr(end);
  if (!url.path.starts_with('/')) url.path.insert(0, "/");
  url.path = TRY(without_dots(url.path));
  return url;
}

Result<Url> Url::resolve(std::string_view reference) const {
  reference = reference.substr(0, reference.find('#'));
  const size_t colon = reference.find(':');
  if (colon != std::string_view::npos && colon < reference.find('/')) return parse(reference);
  if (reference.starts_with("//")) return parse(scheme + ":" + std::string(reference));
  const auto folder = path.substr(0, path.substr(0, path.find('?')).rfind('/') + 1);
  return parse(scheme + "://" + host +
               (reference.starts_with('/') ? std::string(reference) : folder + std::string(reference)));
}

bool is_plain_path(std::string_view path) {
  constexpr size_t kLongest = 1024;
  if (path.empty() || path.size() > kLongest) return false;
  for (const auto segment : split(path, '/')) {
    if (segment.empty() || segment.front() == '.') return false;
  }
  return std::ranges::all_of(path, [](char c) {
    return is_letter_or_digit(c) || std::string_view("/._-+~@:!").find(c) != std::string_view::npos;
  });
}

std::string percent_decoded(std::string_view text) {
  std::string plain;
  const auto digit = [](char c) { return c <= '9' ? c - '0' : (c | 0x20) - 'a' + 10; };
  for (size_t i = 0; i < text.size(); ++i) {
    char c = text[i];
    if (c == '%') {
      if (i + 2 >= text.size() || !std::isxdigit(static_cast<unsigned char>(text[i + 1])) ||
          !std::isxdigit(static_cast<unsigned char>(text[i + 2])))
        return "";
      c = static_cast<char>(digit(text[i + 1]) * 16 + digit(text[i + 2]));
      i += 2;
    }
    if (static_cast<unsigned char>(c) < ' ' || c == 0x7f) return "";
    plain += c;
  }
  return plain;
}

}  // namespace tandem::envs
