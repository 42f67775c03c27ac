#include "hosts/reach.h"

#include <arpa/inet.h>
#include <fmt/format.h>
#include <netdb.h>
#include <netinet/in.h>
#include <poll.h>
#include <sys/socket.h>

#include <cerrno>
#include <cstring>
#include <memory>

#include "base/file.h"

namespace tandem::hosts {
namespace {

std::string text_of(const sockaddr_storage& address) {
  char text[INET6_ADDRSTRLEN] = {};
  if (address.ss_family == AF_INET6) {
    ::inet_ntop(AF_INET6, &reinterpret_cast<const sockaddr_in6&>(address).sin6_addr, text, sizeof text);
    return fmt::format("[{}]", text);
  }
  ::inet_ntop(AF_INET, &reinterpret_cast<const sockaddr_in&>(address).sin_addr, text, sizeof text);
  return text;
}

}  // namespace

Result<Reached> reach(const wire::Address& address, double seconds) {
  std::string host = address.host();
  if (host.starts_with('[') && host.ends_with(']')) host = host.substr(1, host.size() - 2);
  const std::string port = address.text().substr(address.text().rfind(':') + 1);
  addrinfo hints{};
  hints.ai_socktype = SOCK_STREAM;
  hints.ai_family = AF_INET;  // as ZeroMQ listens and connects unless it is told otherwise
  if (host.find(':') != std::string::npos) hints.ai_family = AF_INET6;
  addrinfo* found = nullptr;
  if (const int error = ::getaddrinfo(host.c_str(), port.c_str(), &hints, &found); error != 0)
    return fail(Status::not_found(fmt::format("{} has no address: {}", host, ::gai_strerror(error))));
  const std::unique_ptr<addrinfo, decltype(&::freeaddrinfo)> all(found, &::freeaddrinfo);
  const auto nobody = [&](const std::string& why) {
    return fail(
        Status::unavailable(fmt::format("{} cannot be reached: {}", address.text(), why))
            .hint(fmt::format("is `tandem host --listen {}` running there, and no firewall between?", address.text())));
  };
  FileDescriptor socket(::socket(all->ai_family, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0));
  if (!socket) return fail(Status::from_errno("socket", errno));
  if (::connect(socket.get(), all->ai_addr, all->ai_addrlen) != 0 && errno != EINPROGRESS)
    return nobody(std::strerror(errno));
  pollfd waiting{.fd = socket.get(), .events = POLLOUT, .revents = 0};
  if (::poll(&waiting, 1, static_cast<int>(seconds * 1000)) <= 0)
    return nobody(fmt::format("nothing came back within {:g} s", seconds));
  int error = 0;
  socklen_t length = sizeof error;
  ::getsockopt(socket.get(), SOL_SOCKET, SO_ERROR, &error, &length);
  if (error != 0) return nobody(std::strerror(error));
  sockaddr_storage theirs{}, own{};
  length = sizeof theirs;
  ::getpeername(socket.get(), reinterpret_cast<sockaddr*>(&theirs), &length);
  length = sizeof own;
  ::getsockname(socket.get(), reinterpret_cast<sockaddr*>(&own), &length);
  return Reached{.ip = text_of(theirs), .own_ip = text_of(own)};
}

}  // namespace tandem::hosts
