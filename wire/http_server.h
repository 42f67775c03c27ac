// HTTP/1.1 on one thread: requests are answered whenever there is an answer, whole or as a stream of pieces.
//
// A request is read whole within the limits, or answered with 400, 413 or 431; slow clients hold nobody up. A
// connection brings one request, or several one behind the other where `keep_alive` allows it; where all places are
// taken, those that bring none at the moment make room. Who may ask, and what for, is for the handler to say.
//
// Thread safety: serve, the handler, its replies, streams and what is watched run on one thread; `stop` may be set from
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
  uint64_t number = 0;                         // of the requests of this server, from 1
  std::string peer;                            // the client's address, without its port
  std::string method;                          // "GET"
  std::string path;                            // without the query
  std::string query;                           // behind the question mark, as it was sent
  std::map<std::string, std::string> headers;  // by their names in small letters; repeated ones with ", " between
  std::string body;

  std::string_view header(const std::string& name) const;  // empty where there is none
};

// The body of an answer that is sent piece by piece. Who writes it holds it, and the connection with it, until its end;
// pieces that were written before the connection took it on are sent too. What is written after the client has gone is
// dropped. One that is let go before its end breaks the connection.
class HttpStream {
 public:
  void write(std::string_view piece);
  // Nothing is written afterwards.
  void end();
  // Breaks the connection, so that the client sees that the end is missing.
  void abandon();
  size_t waiting() const { return pieces_.size(); }  // bytes that are not on their way yet

 private:
  friend class HttpVisit;
  enum class State : uint8_t { kOpen, kEnded, kAbandoned };
  std::string pieces_;
  State state_ = State::kOpen;
  std::function<void()> changed_;  // empty before the connection has it, and when the client has gone
};

struct HttpResponse {
  int status = 200;
  std::vector<std::pair<std::string, std::string>> headers;
  std::string body;                              // of an answer to HEAD, only its length is sent
  std::shared_ptr<HttpStream> stream = nullptr;  // in place of the body; may be null

  static HttpResponse plain(int status, std::string text);
};

class Tls;

struct HttpLimits {
  size_t header_bytes = 8192;
  size_t body_bytes = 0;
  // At once. Others have the place of one whose answer is complete, or that has sent nothing; else they wait.
  size_t connections = 64;
  Duration transfer = std::chrono::seconds(5);  // of a request, of an answer, and of each part of a stream
  Duration keep_alive{0};                       // from an answer to the next request; 0: one request a connection
};

// Answers a request, now or later; the first of several answers counts. Destroyed without an answer, it closes the
// connection. None may outlive the server.
using HttpReply = std::function<void(HttpResponse)>;

struct HttpHandler {
  // Returns the refusal of a request before its body is read; nothing where it is accepted. May be empty.
  std::function<std::optional<HttpResponse>(const HttpRequest& request)> refuse;
  std::function<void(HttpRequest request, HttpReply reply)> answer;
  // Called when the client of a request disconnects before the end of its answer, or closes its side. The reply may
  // still be called. May be empty.
  std::function<void(uint64_t number)> gone;
  // Makes the response for a request that never reaches the handler: too large, or not HTTP. Empty: plain text.
  std::function<HttpResponse(int status, std::string message)> malformed;
  std::function<void()> tick;  // called several times a second; may be empty
};

class HttpServer {
 public:
  // `address` is a number, such as 127.0.0.1 or ::1. kUnavailable where it cannot be listened on. Port 0: any that is
  // free. `tls`: null for plain HTTP.
  static Result<HttpServer> listen(const std::string& address, uint16_t port, const HttpLimits& limits,
                                   std::shared_ptr<Tls> tls = nullptr);
  HttpServer(HttpServer&&) noexcept;
  ~HttpServer();

  uint16_t port() const;

  // Calls `readable` whenever the descriptor is, while `serve` runs. The descriptor stays the caller's.
  void watch(int descriptor, std::function<void()> readable);
  // Stops watching a descriptor; call it before closing that. Unknown ones are ignored.
  void unwatch(int descriptor);

  // Serves until `stop`. Answers that are being sent then have two seconds to end.
  Status serve(const HttpHandler& handler, const std::atomic<bool>& stop);

 private:
  struct Listening;
  explicit HttpServer(std::unique_ptr<Listening> listening);
  std::unique_ptr<Listening> listening_;
};

}  // namespace tandem::wire
