// The only network device of a sandbox, and the way through it to a proxy outside.
#include <arpa/inet.h>
#include <net/if.h>
#include <netinet/in.h>
#include <sys/ioctl.h>
#include <sys/socket.h>

#include <cerrno>
#include <cstring>

#include "envs/sandbox/confine.h"

namespace tandem::envs {

Status raise_loopback() {
  FileDescriptor socket_fd(socket(AF_INET, SOCK_DGRAM | SOCK_CLOEXEC, 0));
  ifreq request{};
  strncpy(request.ifr_name, "lo", IFNAMSIZ);
  if (ioctl(socket_fd.get(), SIOCGIFFLAGS, &request) == 0 && (request.ifr_flags & IFF_UP)) return {};
  request.ifr_flags = IFF_UP;
  if (ioctl(socket_fd.get(), SIOCSIFFLAGS, &request) < 0) return Status::from_errno("loopback", errno);
  return {};
}

Result<FileDescriptor> listen_for_proxy() {
  FileDescriptor listener(socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0));
  sockaddr_in address{};
  address.sin_family = AF_INET;
  address.sin_port = htons(kProxyPort);
  address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  if (bind(listener.get(), reinterpret_cast<const sockaddr*>(&address), sizeof address) != 0 ||
      listen(listener.get(), 64) != 0)
    return fail(Status::from_errno("the port of the proxy", errno));
  return listener;
}

std::vector<std::string> proxy_settings() {
  const auto proxy = "http://127.0.0.1:" + std::to_string(kProxyPort);
  std::vector<std::string> settings;
  for (const char* name : {"http_proxy", "https_proxy", "HTTP_PROXY", "HTTPS_PROXY"})
    settings.push_back(name + ("=" + proxy));
  for (const char* name : {"no_proxy", "NO_PROXY"}) settings.push_back(name + std::string("=localhost,127.0.0.1,::1"));
  return settings;
}

}  // namespace tandem::envs
