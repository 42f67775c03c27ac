#include "envs/network/proxy_request.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace tandem::envs {
namespace {

ProxyRequest read_request(const std::string& head) {
  auto request = parse_proxy_request(head);
  EXPECT_TRUE(request.has_value()) << request.error().to_string();
  return request.value_or(ProxyRequest());
}

std::string proxy_request_mistake(const std::string& head) {
  const auto request = parse_proxy_request(head);
  return request ? "none: " + request->head : request.error().message();
}

TEST(ProxyRequest, the_host_is_told_the_name_that_was_checked) {
  const auto request = read_request(
      "GET http://a.example:8080/x?y=1 HTTP/1.1\r\nHost: evil.example\r\nAccept: */*\r\nProxy-Authorization: Basic "
      "eA==\r\nConnection: X-Own, Host\r\nX-Own: 1\r\nProxy-Connection: keep-alive\r\n\r\n");
  EXPECT_EQ(request.method, "GET");
  EXPECT_EQ(request.host, "a.example");
  EXPECT_EQ(request.port, 8080);
  EXPECT_FALSE(request.tunnel);
  EXPECT_EQ(request.body_bytes, 0);
  EXPECT_EQ(request.head, "GET /x?y=1 HTTP/1.1\r\nHost: a.example:8080\r\nAccept: */*\r\nConnection: close\r\n\r\n");
}

TEST(ProxyRequest, a_tunnel_names_host_and_port) {
  const auto request = read_request("CONNECT [2001:db8::1]:443 HTTP/1.1\r\nUser-Agent: x\r\n\r\n");
  EXPECT_TRUE(request.tunnel);
  EXPECT_EQ(request.host, "2001:db8::1");
  EXPECT_EQ(request.port, 443);
  EXPECT_EQ(proxy_request_mistake("CONNECT a.example HTTP/1.1\r\n\r\n"), "CONNECT needs a port behind the host");
}

TEST(ProxyRequest, a_path_may_be_missing_and_a_body_has_a_length_or_chunks) {
  EXPECT_EQ(read_request("GET http://a.example HTTP/1.0\r\n\r\n").head,
            "GET / HTTP/1.0\r\nHost: a.example\r\nConnection: close\r\n\r\n");
  EXPECT_EQ(read_request("GET http://a.example?q HTTP/1.1\r\n\r\n").head,
            "GET /?q HTTP/1.1\r\nHost: a.example\r\nConnection: close\r\n\r\n");
  EXPECT_EQ(read_request("POST http://a.example/ HTTP/1.1\r\nContent-Length: 12\r\n\r\n").body_bytes, 12);
  const auto chunks = read_request(
      "POST http://a.example/ HTTP/1.1\r\nTransfer-Encoding: chunked\r\nConnection: "
      "transfer-encoding\r\n\r\n");
  EXPECT_EQ(chunks.body_bytes, std::nullopt);
  EXPECT_THAT(chunks.head, testing::HasSubstr("Transfer-Encoding: chunked"));
}

TEST(ProxyRequest, what_two_readers_could_take_differently_is_refused) {
  const std::string get = "GET http://a.example/ HTTP/1.1\r\n";
  for (const std::string& head : {get + "Content-Length: 1\r\nContent-Length: 2\r\n\r\n",
                                  get + "Content-Length: 1, 1\r\n\r\n",
                                  get + "Content-Length: +1\r\n\r\n",
                                  get + "Content-Length: 1\r\nTransfer-Encoding: chunked\r\n\r\n",
                                  get + "Transfer-Encoding: gzip, chunked\r\n\r\n",
                                  get + "A: 1\r\n folded\r\n\r\n",
                                  get + "A : 1\r\n\r\n",
                                  get + "A: 1\nB: 2\r\n\r\n",
                                  get + std::string("A: \0\r\n\r\n", 8),
                                  get + ": 1\r\n\r\n",
                                  std::string("GET / HTTP/1.1\r\nHost: a.example\r\n\r\n"),
                                  std::string("GET http:// HTTP/1.1\r\n\r\n"),
                                  std::string("GET https://a.example/ HTTP/1.1\r\n\r\n"),
                                  std::string("GET http://u:p@a.example/ HTTP/1.1\r\n\r\n"),
                                  std::string("GET http://a.example:70000/ HTTP/1.1\r\n\r\n"),
                                  std::string("GET http://a.example:/ HTTP/1.1\r\n\r\n"),
                                  std::string("GET http://a:b:1/ HTTP/1.1\r\n\r\n"),
                                  std::string("GET  http://a.example/ HTTP/1.1\r\n\r\n"),
                                  std::string("GET http://a.example/ HTTP/2\r\n\r\n"),
                                  std::string("G(T http://a.example/ HTTP/1.1\r\n\r\n"),
                                  std::string("\r\n\r\n"),
                                  std::string("GET"),
                                  std::string("GET http://a.example/#f HTTP/1.1\r\n\r\n"),
                                  get + std::string(kLargestProxyHead, 'a') + ": 1\r\n\r\n"}) {
    EXPECT_FALSE(parse_proxy_request(head).has_value()) << head.substr(0, 200);
  }
  std::string many = get;
  for (size_t i = 0; i <= kMostProxyFields; ++i) many += "A: 1\r\n";
  EXPECT_EQ(proxy_request_mistake(many + "\r\n"), "the request has more than 100 fields");
}

}  // namespace
}  // namespace tandem::envs
