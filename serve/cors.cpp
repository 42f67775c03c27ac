#include "serve/cors.h"

#include <fmt/format.h>

#include <algorithm>

namespace tandem::serve {
namespace {

using wire::HttpRequest;
using wire::HttpResponse;

constexpr const char* kMethods = "GET, POST, DELETE";
constexpr const char* kPreflightSeconds = "600";  // that a browser may keep what it was told

// The origin of a request that is allowed; empty: none.
std::string allowed(const HttpRequest& request, const std::vector<std::string>& origins) {
  const std::string origin(request.header("origin"));
  const bool in = !origin.empty() && (std::ranges::find(origins, "*") != origins.end() ||
                                      std::ranges::find(origins, origin) != origins.end());
  return in ? origin : "";
}

void add_headers(HttpResponse& response, const std::string& origin) {
  response.headers.emplace_back("Vary", "Origin");
  if (origin.empty()) return;
  response.headers.emplace_back("Access-Control-Allow-Origin", origin);
  response.headers.emplace_back("Access-Control-Expose-Headers", "Retry-After, X-Request-Id, X-Tandem-Upstream");
}

}  // namespace

Status check_origins(const std::vector<std::string>& origins) {
  for (const std::string& origin : origins) {
    if (origin == "*") continue;
    const size_t scheme = origin.find("://");
    const bool http = origin.starts_with("http://") || origin.starts_with("https://");
    const std::string_view host = http ? std::string_view(origin).substr(scheme + 3) : std::string_view();
    const bool plain = std::ranges::all_of(origin, [](unsigned char c) { return c > ' ' && c < 0x7f; });
    if (host.empty() || !plain || host.find_first_of("/?#@*,\"") != std::string_view::npos) {
      return Status::invalid(fmt::format("\"{}\" is no origin such as https://app.example.com", origin))
          .hint(
              "an origin has a scheme, a host, and a port where it is not the usual one; no path and no slash behind "
              "it");
    }
  }
  return {};
}

wire::HttpHandler with_cors(wire::HttpHandler handler, std::vector<std::string> origins) {
  if (origins.empty()) return handler;
  wire::HttpHandler with = handler;
  with.refuse = [refuse = std::move(handler.refuse), origins](const HttpRequest& request) {
    const std::string origin = allowed(request, origins);
    if (request.method == "OPTIONS" && !request.header("access-control-request-method").empty()) {
      HttpResponse answer{.status = 204};
      add_headers(answer, origin);
      if (origin.empty()) return std::optional(std::move(answer));
      answer.headers.emplace_back("Access-Control-Allow-Methods", kMethods);
      answer.headers.emplace_back("Access-Control-Allow-Headers", request.header("access-control-request-headers"));
      answer.headers.emplace_back("Access-Control-Max-Age", kPreflightSeconds);
      return std::optional(std::move(answer));
    }
    // A server without keys refuses requests of pages, but for those that are named.
    HttpRequest asked = request;
    if (!origin.empty() && std::ranges::find(origins, origin) != origins.end()) asked.headers.erase("origin");
    auto refusal = refuse ? refuse(asked) : std::nullopt;
    if (refusal) add_headers(*refusal, origin);
    return refusal;
  };
  with.answer = [answer = std::move(handler.answer), origins = std::move(origins)](HttpRequest request,
                                                                                   wire::HttpReply reply) {
    const std::string origin = allowed(request, origins);
    answer(std::move(request), [origin, reply = std::move(reply)](HttpResponse response) {
      add_headers(response, origin);
      reply(std::move(response));
    });
  };
  return with;
}

}  // namespace tandem::serve
