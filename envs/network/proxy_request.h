// The head of a request to the proxy: parsed strictly, and rewritten for the target host.
//
// Only what is understood goes on: the name that was checked is the one that the host is told, fields that are meant
// for a proxy stay behind, and what two readers could take differently (folded lines, two lengths, a length beside
// chunks) is refused. Source: RFC 9110 and RFC 9112.
//
// Values; pure.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

#include "base/status.h"
#include "envs/network/package_service.h"

namespace tandem::envs {

inline constexpr size_t kLargestProxyHead = 16 << 10;  // bytes
inline constexpr size_t kMostProxyFields = 100;

struct ProxyRequest {
  std::string method;
  std::string host;  // a name or an address, as it stands in the request, without brackets
  uint16_t port = 0;
  bool tunnel = false;                     // CONNECT: bytes go both ways, unseen
  std::string head;                        // what the host is sent in its place; empty for a tunnel
  std::optional<uint64_t> body_bytes = 0;  // that follow; nothing: until the sender ends
};

// `head` with the empty line at its end. kInvalid, in words for who sent it, where it is no request that goes on.
Result<ProxyRequest> parse_proxy_request(std::string_view head);

// Whether the first line asks the proxy itself: "GET /PATH HTTP/1.1". Other requests go on to a host.
bool asks_proxy_itself(std::string_view head);

// Such a request: GET or HEAD, without a body. kInvalid, in words for who sent it, where it is none.
Result<PackageRequest> parse_package_request(std::string_view head);

}  // namespace tandem::envs
