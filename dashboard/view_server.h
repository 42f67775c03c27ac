// A page served to the browser of whoever sits at this machine, and to nobody else.
//
// Listens on 127.0.0.1 alone. A request whose Host is not this address is refused, so that a web site cannot reach the
// page through a name of its own (DNS rebinding). GET and HEAD only, requests of 8 KiB at most, 5 seconds for each;
// slow visitors hold nobody up.
//
// Thread safety: one thread; `stop` may be set from anywhere, a signal handler included.
#pragma once

#include <atomic>
#include <cstdint>
#include <functional>
#include <string>

#include "base/status.h"
#include "wire/http_server.h"

namespace tandem::dashboard {

struct ServedPage {
  std::string type;  // "text/html; charset=utf-8"
  std::string body;
};

class ViewServer {
 public:
  // kUnavailable where the port is taken. Port 0: any that is free.
  static Result<ViewServer> listen(uint16_t port);
  uint16_t port() const { return server_.port(); }

  // Until `stop`. `answer` is asked for every path ("/", "/summary.json"); kNotFound becomes 404, other errors 500 with
  // their words.
  Status serve(const std::function<Result<ServedPage>(const std::string& path)>& answer, const std::atomic<bool>& stop);

 private:
  explicit ViewServer(wire::HttpServer server) : server_(std::move(server)) {}
  wire::HttpServer server_;
};

}  // namespace tandem::dashboard
