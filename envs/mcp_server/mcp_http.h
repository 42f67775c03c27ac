// The Model Context Protocol over streamable HTTP: POST and DELETE at /mcp, answers as one JSON object.
//
// Access is checked before the body of a request is read: the bearer token; the Host, where only this machine is
// listened for, so that a web site cannot come in by a name of its own; the Origin, of which only our own is let in.
// A client that initializes gets a session id, a sandbox of its own for its calls, and loses both by DELETE or by not
// asking for a while. There is no stream for what a server says unasked, since this one says nothing unasked: GET is
// 405.
//
// Thread safety: one thread; `stop` may be set from anywhere, a signal handler included.
#pragma once

#include <atomic>
#include <functional>
#include <map>
#include <memory>
#include <string>

#include "base/clock.h"
#include "envs/mcp_server/mcp_peer.h"
#include "wire/http_server.h"

namespace tandem::envs {

struct McpHttpSettings {
  std::string address = "127.0.0.1";         // a number
  uint16_t port = 0;                         // 0: any that is free
  std::string token;                         // that every request must bear; not empty
  size_t sessions = 16;                      // at once; a client beyond them is sent away with 503
  Duration idle = std::chrono::minutes(30);  // after which a session without a request ends
};

// Random bytes of the system, as 32 hexadecimal digits.
std::string random_token();

class McpHttp {
 public:
  // kUnavailable where the address cannot be listened on. The clock outlives the server.
  static Result<McpHttp> listen(McpHttpSettings settings, McpServing serving, const Clock& clock);

  std::string url() const;  // "http://127.0.0.1:8080/mcp"
  Status serve(const std::atomic<bool>& stop);

 private:
  McpHttp(McpHttpSettings settings, McpServing serving, const Clock& clock, wire::HttpServer server);

  McpHttpSettings settings_;
  McpServing serving_;
  const Clock* clock_;
  wire::HttpServer server_;
};

}  // namespace tandem::envs
