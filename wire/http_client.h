// One HTTP request to a foreign server; the response body is streamed to a callback.
//
// Redirects are not followed, so that credentials reach only the named server. Certificates are verified with the
// system's authorities or those of SSL_CERT_FILE and SSL_CERT_DIR.
// Proxies are those of the environment, as curl reads it. Thread safety: http_request may be called from several
// threads; `on_body` is called on the caller's.
#pragma once

#include <functional>
#include <optional>
#include <stop_token>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "base/clock.h"
#include "base/status.h"

namespace tandem::wire {

struct OutgoingRequest {
  std::string url;               // http or https
  std::string method = "POST";   // GET has no body
  std::string unix_socket = {};  // of this machine, in place of the host in the URL; proxies are not asked then
  std::vector<std::pair<std::string, std::string>> headers = {};
  std::string body = {};
  Duration connect_limit = std::chrono::seconds(10);
  Duration limit = std::chrono::seconds(600);  // of all of it
  size_t largest_answer = size_t{16} << 20;    // bytes
};

struct HttpHead {
  int status = 0;
  std::string content_type;             // in small letters, without parameters
  std::string redirect;                 // where a redirect leads to, as a whole URL; known when the answer is whole
  std::optional<Duration> retry_after;  // known when the answer is whole
};

// An error ends the request and is its result.
using OnHttpBody = std::function<Status(const HttpHead& head, std::string_view bytes)>;

// kInvalid: no URL of ours; kUnfit: its certificate is not trusted here; kUnavailable: the server cannot be reached, or
// broke off; kDeadline: not within a limit; kExhausted: the answer is too large; kCancelled: `stop` was asked for,
// which ends the request at once.
Result<HttpHead> http_request(const OutgoingRequest& request, const OnHttpBody& on_body, const std::stop_token& stop);

// kInvalid, with the reason, for anything but an http or https URL with a host and without credentials.
Status check_url(const std::string& url);

}  // namespace tandem::wire
