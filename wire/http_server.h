// HTTP/1.1 for a few visitors: each connection brings one request, and gets its answer whenever there is one.
//
// A request is read whole within the limits, or answered with 400, 413 or 431; slow visitors hold nobody up. Who may
// ask, and what for, is for the handler to say.
//
// Thread safety: serve, the handler, its replies and what is watched run on one thread; `stop` may be set from
// anywhere, a signal handler included.
#pragma once

#include <atomic>
#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "base/clock.h"
#include "base/status.h"

namespace tandem::wire {

struct HttpRequest {
  std::string method;                          // "GET"
  std::string path;                            // without the query
  std::map<std::string, std::string> headers;  // by their names in small letters; repeated ones with ", " between
  std::string body;

  std::string_view header(const std::string& name) const;  // empty where there is none
};

struct HttpResponse {
  int status = 200;
  std::vector<std::pair<std::string, std::string>> headers;
  std::string body;  // of an answer to HEAD, only its length is sent

  static HttpResponse plain(int status, std::string text);
};

struct HttpLimits {
  size_t header_bytes = 8192;
  size_t body_bytes = 0;
  size_t connections = 64;                      // at once; others wait to be accepted
  Duration transfer = std::chrono::seconds(5);  // of a request, and of an answer
};

// Answers a request, at once or later; of several answers the first counts. One that is let go unanswered closes the
// connection. None may outlive the server.
using HttpReply = std::function<void(HttpResponse)>;

struct HttpHandler {
  // What a request is refused with before its body is read; nothing where it may go on. May be empty.
  std::function<std::optional<HttpResponse>(const HttpRequest& request)> refuse;
  std::function<void(HttpRequest request, HttpReply reply)> answer;
  std::function<void()> tick;  // called several times a second; may be empty
};

class HttpServer {
 public:
  // `address` is a number, such as 127.0.0.1 or ::1. kUnavailable where it cannot be listened on. Port 0: any that is
  // free.
  static Result<HttpServer> listen(const std::string& address, uint16_t port, const HttpLimits& limits);
  HttpServer(HttpServer&&) noexcept;
  ~HttpServer();

  uint16_t port() const;

  // Calls `readable` whenever the descriptor is, while `serve` runs. The descriptor stays the caller's.
  void watch(int descriptor, std::function<void()> readable);

  // Until `stop`; answers that are being sent then have two seconds.
  Status serve(const HttpHandler& handler, const std::atomic<bool>& stop);

 private:
  struct Listening;
  explicit HttpServer(std::unique_ptr<Listening> listening);
  std::unique_ptr<Listening> listening_;
};

}  // namespace tandem::wire
