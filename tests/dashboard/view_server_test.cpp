#include "dashboard/view_server.h"

#include <arpa/inet.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <netinet/in.h>
#include <sys/socket.h>
#include <unistd.h>

#include <thread>

namespace tandem::dashboard {
namespace {

using testing::HasSubstr;
using testing::Not;
using testing::StartsWith;

// Sends bytes to a port of 127.0.0.1 and returns all that comes back.
std::string exchange(uint16_t port, const std::string& bytes) {
  const int fd = ::socket(AF_INET, SOCK_STREAM, 0);
  sockaddr_in where{};
  where.sin_family = AF_INET;
  where.sin_port = htons(port);
  where.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  EXPECT_EQ(::connect(fd, reinterpret_cast<sockaddr*>(&where), sizeof(where)), 0);
  EXPECT_EQ(::send(fd, bytes.data(), bytes.size(), MSG_NOSIGNAL), static_cast<ssize_t>(bytes.size()));
  std::string answer;
  char buffer[4096];
  for (ssize_t n; (n = ::recv(fd, buffer, sizeof(buffer), 0)) > 0;) answer.append(buffer, static_cast<size_t>(n));
  ::close(fd);
  return answer;
}

class Served : public testing::Test {
 protected:
  Served() : server_(*ViewServer::listen(0)) {
    thread_ = std::thread([this] {
      EXPECT_TRUE(server_.serve(
          [](const std::string& path) -> Result<ServedPage> {
            if (path != "/") return fail(Status::not_found("no such page"));
            return ServedPage{"text/html; charset=utf-8", "<p>hello</p>"};
          },
          stop_));
    });
  }
  ~Served() override {
    stop_ = true;
    thread_.join();
  }
  std::string request(const std::string& line, const std::string& host) {
    return exchange(server_.port(), line + " HTTP/1.1\r\nHost: " + host + "\r\n\r\n");
  }
  std::string here() { return "127.0.0.1:" + std::to_string(server_.port()); }

  ViewServer server_;
  std::atomic<bool> stop_{false};
  std::thread thread_;
};

TEST_F(Served, the_page_is_given_to_this_machine) {
  const std::string answer = request("GET /?again", here());
  EXPECT_THAT(answer, StartsWith("HTTP/1.1 200"));
  EXPECT_THAT(answer, HasSubstr("<p>hello</p>"));
  EXPECT_THAT(answer, HasSubstr("X-Frame-Options: DENY"));
  EXPECT_THAT(request("GET /", "localhost:" + std::to_string(server_.port())), StartsWith("HTTP/1.1 200"));
}

TEST_F(Served, a_request_in_the_name_of_another_host_is_refused) {
  for (const std::string& host : {std::string("evil.example"), "evil.example:" + std::to_string(server_.port()),
                                  std::string("127.0.0.1"), std::string()}) {
    const std::string answer = request("GET /", host);
    EXPECT_THAT(answer, StartsWith("HTTP/1.1 403")) << host;
    EXPECT_THAT(answer, Not(HasSubstr("hello")));
  }
}

TEST_F(Served, other_methods_and_paths_are_refused) {
  EXPECT_THAT(request("POST /", here()), StartsWith("HTTP/1.1 405"));
  EXPECT_THAT(request("GET /../etc/passwd", here()), StartsWith("HTTP/1.1 404"));
  EXPECT_THAT(request("HEAD /", here()), Not(HasSubstr("hello")));
}

TEST_F(Served, nonsense_and_endless_headers_end_the_visit_and_nothing_else) {
  EXPECT_THAT(exchange(server_.port(), "\x16\x03\x01 nonsense\r\n\r\n"), Not(HasSubstr("200")));
  EXPECT_THAT(exchange(server_.port(), "GET / HTTP/1.1\r\nX: " + std::string(9000, 'a') + "\r\n\r\n"),
              Not(HasSubstr("200")));
  EXPECT_THAT(request("GET /", here()), StartsWith("HTTP/1.1 200"));
}

TEST_F(Served, a_port_that_is_taken_is_named) {
  const auto second = ViewServer::listen(server_.port());
  ASSERT_FALSE(second);
  EXPECT_EQ(second.error().code(), Code::kUnavailable);
  EXPECT_THAT(second.error().message(), HasSubstr(std::to_string(server_.port())));
}

}  // namespace
}  // namespace tandem::dashboard
