#include "serve/cors.h"

#include <gtest/gtest.h>

#include <algorithm>

namespace tandem::serve {
namespace {

using wire::HttpHandler;
using wire::HttpRequest;
using wire::HttpResponse;

std::string header(const HttpResponse& response, const std::string& name) {
  const auto found = std::ranges::find(response.headers, name, [](const auto& one) { return one.first; });
  return found == response.headers.end() ? "" : found->second;
}

// Refuses requests without a key, and of pages.
HttpHandler inner() {
  HttpHandler handler;
  handler.refuse = [](const HttpRequest& request) -> std::optional<HttpResponse> {
    if (!request.header("origin").empty()) return HttpResponse{.status = 403};
    if (request.header("authorization").empty()) return HttpResponse{.status = 401};
    return std::nullopt;
  };
  handler.answer = [](const HttpRequest&, const wire::HttpReply& reply) { reply({.status = 200, .body = "ok"}); };
  return handler;
}

HttpRequest from(const std::string& origin, std::string method = "POST") {
  HttpRequest request{.method = std::move(method), .path = "/v1/models"};
  request.headers = {{"origin", origin}, {"authorization", "Bearer x"}};
  return request;
}

TEST(Cors, only_named_origins_may) {
  const auto handler = with_cors(inner(), {"https://app.example.com"});
  EXPECT_FALSE(handler.refuse(from("https://app.example.com")));
  const auto other = handler.refuse(from("https://other.example.com"));
  ASSERT_TRUE(other);
  EXPECT_EQ(other->status, 403);
  EXPECT_EQ(header(*other, "Access-Control-Allow-Origin"), "");
  HttpResponse got;
  handler.answer(from("https://app.example.com"), [&](HttpResponse response) { got = std::move(response); });
  EXPECT_EQ(header(got, "Access-Control-Allow-Origin"), "https://app.example.com");
  EXPECT_EQ(header(got, "Vary"), "Origin");
  // Its refusals can be read by the page, too.
  auto without_key = from("https://app.example.com");
  without_key.headers.erase("authorization");
  const auto refused = handler.refuse(without_key);
  ASSERT_TRUE(refused);
  EXPECT_EQ(refused->status, 401);
  EXPECT_EQ(header(*refused, "Access-Control-Allow-Origin"), "https://app.example.com");
}

TEST(Cors, preflights_need_no_key) {
  const auto handler = with_cors(inner(), {"https://app.example.com"});
  HttpRequest preflight{.method = "OPTIONS", .path = "/v1/chat/completions"};
  preflight.headers = {{"origin", "https://app.example.com"},
                       {"access-control-request-method", "POST"},
                       {"access-control-request-headers", "authorization"}};
  const auto answer = handler.refuse(preflight);
  ASSERT_TRUE(answer);
  EXPECT_EQ(answer->status, 204);
  EXPECT_EQ(header(*answer, "Access-Control-Allow-Headers"), "authorization");
  preflight.headers["origin"] = "https://other.example.com";
  EXPECT_EQ(header(*handler.refuse(preflight), "Access-Control-Allow-Methods"), "");
}

TEST(Cors, all_origins_and_none) {
  EXPECT_EQ(with_cors(inner(), {}).refuse(from("https://a.example"))->status, 403);
  const auto all = with_cors(inner(), {"*"});
  const auto refused = all.refuse(from("https://a.example"));
  ASSERT_TRUE(refused) << "a server that refuses pages still does: * names none";
  EXPECT_EQ(header(*refused, "Access-Control-Allow-Origin"), "https://a.example");
}

TEST(Cors, origins_are_checked) {
  EXPECT_TRUE(check_origins({"*", "https://a.example", "http://localhost:3000", "https://[::1]:8443"}));
  for (const auto wrong : {"", "a.example", "https://", "https://a.example/", "https://a.example/x", "ftp://a.example",
                           "https://a b", "https://*.example"}) {
    EXPECT_FALSE(check_origins({wrong})) << wrong;
  }
}

}  // namespace
}  // namespace tandem::serve
