#include "wire/address.h"

#include <fmt/format.h>

namespace tandem::wire {
namespace {

constexpr std::string_view kIpc = "ipc://", kTcp = "tcp://", kInProcess = "inproc://", kAnyPort = "*";
constexpr size_t kMaxLetters = 1024;
constexpr int kMaxPort = 65535;

bool is_port(std::string_view text) {
  if (text.empty() || text.size() > 5 || text.find_first_not_of("0123456789") != std::string_view::npos) return false;
  return std::stoi(std::string(text)) <= kMaxPort;
}

// Whether `text` is an address whose port, if it has one, is taken by `takes`.
template <typename Takes>
bool is_address(std::string_view text, Takes takes) {
  if (text.size() > kMaxLetters || text.find('\0') != std::string_view::npos) return false;
  for (const std::string_view kind : {kIpc, kInProcess}) {
    if (text.starts_with(kind)) return text.size() > kind.size();
  }
  const auto colon = text.rfind(':');
  return text.starts_with(kTcp) && colon > kTcp.size() && takes(text.substr(colon + 1));
}

Status is_none(std::string_view text) {
  return Status::invalid(fmt::format("\"{}\" is not an address", text.substr(0, 100)))
      .hint("give tcp://HOST:PORT or ipc://PATH");
}

}  // namespace

Result<Address> Address::parse(std::string_view text) {
  if (!is_address(text, is_port)) return fail(is_none(text));
  return Address(std::string(text));
}

Result<Address> Address::parse_to_listen(std::string_view text) {
  if (!is_address(text, [](std::string_view port) { return port == kAnyPort || is_port(port); }))
    return fail(is_none(text));
  return Address(std::string(text));
}

Address Address::of_path(const fs::path& path) { return Address(std::string(kIpc) + path.string()); }

Address Address::of_port(std::string_view host, int port) { return Address(fmt::format("{}{}:{}", kTcp, host, port)); }

Address Address::of_any_port(std::string_view ip) { return Address(fmt::format("{}{}:{}", kTcp, ip, kAnyPort)); }

bool Address::is_network(std::string_view text) { return text.starts_with(kTcp); }

bool Address::takes_secret() const { return is_network(text_); }

bool Address::is_of_this_machine() const {
  const std::string name = host();
  return !takes_secret() || name.starts_with("127.") || name == "[::1]" || name == "localhost";
}

std::string Address::host() const {
  const std::string both = host_and_port();
  return both.substr(0, both.rfind(':'));
}

std::string Address::host_and_port() const { return takes_secret() ? text_.substr(kTcp.size()) : ""; }

fs::path Address::path() const { return text_.starts_with(kIpc) ? text_.substr(kIpc.size()) : ""; }

}  // namespace tandem::wire
