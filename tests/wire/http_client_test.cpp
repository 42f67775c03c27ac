#include "wire/http_client.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <signal.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#include <atomic>
#include <cstdio>
#include <cstdlib>
#include <thread>

#include "base/file.h"
#include "wire/http_server.h"

namespace tandem::wire {
namespace {

using namespace std::chrono_literals;
using testing::HasSubstr;

// Says what it was sent; /busy asks for a pause, /moved sends elsewhere, /cut closes the connection, /never says
// nothing.
class HttpClientTest : public testing::Test {
 protected:
  HttpClientTest() : server_(*HttpServer::listen("127.0.0.1", 0, {.body_bytes = 1 << 20})) {
    handler_.answer = [this](const HttpRequest& request, const HttpReply& reply) {
      ++requests_;
      if (request.path == "/busy-a-while") return reply({429, {{"Retry-After", "2.5"}}, "wait"});
      if (request.path == "/busy-for-a-moment")
        return reply({429, {{"Retry-After", "9"}, {"retry-after-ms", "300"}}, "wait"});
      if (request.path == "/busy") return reply({429, {{"Retry-After", "7"}}, "wait"});
      if (request.path == "/moved") return reply({307, {{"Location", "/"}}, ""});
      if (request.path == "/cut") return;
      if (request.path == "/never") return kept_.push_back(reply);
      reply({200,
             {{"Content-Type", "Text/Plain; charset=utf-8"}},
             request.method + " " + std::string(request.header("authorization")) + " " + request.body});
    };
    thread_ = std::thread([this] { EXPECT_TRUE(server_.serve(handler_, stop_)); });
  }
  ~HttpClientTest() override {
    stop_ = true;
    thread_.join();
    kept_.clear();
  }
  OutgoingRequest to(const std::string& path) const {
    return {.url = "http://127.0.0.1:" + std::to_string(server_.port()) + path, .body = "hello"};
  }
  Result<HttpHead> post(const OutgoingRequest& what, const std::stop_token& stop = {}) {
    body_.clear();
    return http_request(
        what,
        [this](const HttpHead&, std::string_view bytes) -> Status {
          body_.append(bytes);
          return {};
        },
        stop);
  }

  HttpServer server_;
  std::vector<HttpReply> kept_;
  HttpHandler handler_;
  std::atomic<bool> stop_{false};
  std::atomic<int> requests_{0};
  std::thread thread_;
  std::string body_;
};

TEST_F(HttpClientTest, every_method_can_be_asked_with) {
  auto request = to("/");
  request.method = "GET";
  ASSERT_TRUE(post(request));
  EXPECT_THAT(body_, testing::StartsWith("GET "));
  request.method = "DELETE";
  ASSERT_TRUE(post(request));
  EXPECT_EQ(body_, "DELETE  hello");
}

TEST_F(HttpClientTest, a_socket_of_this_machine_takes_the_place_of_the_host) {
  char folder[] = "/tmp/http-XXXXXX";
  ASSERT_NE(mkdtemp(folder), nullptr);
  const std::string path = std::string(folder) + "/socket";
  sockaddr_un address{.sun_family = AF_UNIX, .sun_path = {}};
  path.copy(address.sun_path, sizeof address.sun_path - 1);
  const FileDescriptor listener(socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0));
  ASSERT_EQ(bind(listener.get(), reinterpret_cast<sockaddr*>(&address), sizeof address), 0);
  ASSERT_EQ(listen(listener.get(), 1), 0);
  std::thread answering([&] {
    const FileDescriptor client(accept(listener.get(), nullptr, nullptr));
    char bytes[4096];
    EXPECT_GT(read(client.get(), bytes, sizeof bytes), 0);
    EXPECT_TRUE(write_all(client.get(), "HTTP/1.1 200 OK\r\nContent-Length: 5\r\n\r\nlocal", "answer"));
  });
  const OutgoingRequest request{.url = "http://engine/", .method = "GET", .unix_socket = path};
  const auto head = post(request);
  answering.join();
  ASSERT_TRUE(head) << head.error().message();
  EXPECT_EQ(body_, "local");
  std::error_code error;
  fs::remove_all(folder, error);
  EXPECT_EQ(post(request).error().code(), Code::kUnavailable);
}

TEST_F(HttpClientTest, a_request_gets_its_answer_with_status_type_and_body) {
  auto request = to("/");
  request.headers = {{"Authorization", "Bearer x"}};
  const auto head = post(request);
  ASSERT_TRUE(head) << head.error().message();
  EXPECT_EQ(head->status, 200);
  EXPECT_EQ(head->content_type, "text/plain");
  EXPECT_EQ(body_, "POST Bearer x hello");
}

TEST_F(HttpClientTest, a_pause_that_is_asked_for_is_told_and_redirects_are_not_followed) {
  EXPECT_EQ(post(to("/busy"))->retry_after, Duration(7s));
  EXPECT_EQ(post(to("/busy-a-while"))->retry_after, Duration(2500ms));
  EXPECT_EQ(post(to("/busy-for-a-moment"))->retry_after, Duration(300ms));
  EXPECT_EQ(body_, "wait");
  EXPECT_EQ(post(to("/moved"))->status, 307);
  EXPECT_EQ(requests_, 4);
}

TEST_F(HttpClientTest, what_goes_wrong_has_its_code) {
  EXPECT_EQ(post(to("/cut")).error().code(), Code::kUnavailable);
  EXPECT_EQ(post({.url = "ftp://127.0.0.1/"}).error().code(), Code::kInvalid);
  EXPECT_EQ(post({.url = "http://"}).error().code(), Code::kInvalid);
  auto slow = to("/never");
  slow.limit = 50ms;
  EXPECT_EQ(post(slow).error().code(), Code::kDeadline);
  auto small = to("/");
  small.largest_answer = 3;
  EXPECT_EQ(post(small).error().code(), Code::kExhausted);
  auto split = to("/");
  split.headers = {{"X", "a\r\nY: b"}};
  EXPECT_EQ(post(split).error().code(), Code::kInvalid);
  const auto refused = http_request(to("/"), [](const auto&, auto) { return Status::corrupt("not this"); }, {});
  EXPECT_EQ(refused.error(), Status::corrupt("not this"));
}

TEST_F(HttpClientTest, a_port_that_nobody_listens_on_is_unavailable) {
  const uint16_t port = HttpServer::listen("127.0.0.1", 0, {})->port();
  EXPECT_EQ(post({.url = "http://127.0.0.1:" + std::to_string(port)}).error().code(), Code::kUnavailable);
}

TEST_F(HttpClientTest, a_request_that_is_under_way_ends_when_it_is_asked_to) {
  std::stop_source stop;
  std::thread stopper([&] {
    while (requests_ == 0) std::this_thread::yield();
    stop.request_stop();
  });
  EXPECT_EQ(post(to("/never"), stop.get_token()).error().code(), Code::kCancelled);
  stopper.join();
  EXPECT_EQ(post(to("/"), stop.get_token()).error().code(), Code::kCancelled);
}

// Its key and certificate are for nothing else, and good until 2126.
constexpr const char* kTlsServer = R"(
import http.server, os, ssl, sys
class Answer(http.server.BaseHTTPRequestHandler):
    def do_POST(self):
        self.rfile.read(int(self.headers["Content-Length"]))
        self.send_response(200)
        self.end_headers()
    def log_message(self, *arguments):
        pass
server = http.server.HTTPServer(("127.0.0.1", 0), Answer)
context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
context.load_cert_chain(sys.argv[1])
server.socket = context.wrap_socket(server.socket, server_side=True)
print(os.getpid(), server.server_port, flush=True)
server.serve_forever()
)";
constexpr const char* kKeyAndCertificate = R"(-----BEGIN PRIVATE KEY-----
MIGHAgEAMBMGByqGSM49AgEGCCqGSM49AwEHBG0wawIBAQQg5VGoQSLUBZMV0yak
4PH4/vumm9+Y6oQ36G6tCreGXV2hRANCAASwTxal2QNhNh55++hQBaNPoxEEfqwh
zst35jYdhJ8CkYG/8Kx/jAzukc3xCDz7gmn1icQYOwyBHofatyOZLkt5
-----END PRIVATE KEY-----
-----BEGIN CERTIFICATE-----
MIIBmzCCAUGgAwIBAgIUaMmibM4kBzhp4VfBDA16h6XX8/swCgYIKoZIzj0EAwIw
FDESMBAGA1UEAwwJbG9jYWxob3N0MCAXDTI2MTEyMjIxNDE1NVoYDzIxMjYxMDI5
MjE0MTU1WjAUMRIwEAYDVQQDDAlsb2NhbGhvc3QwWTATBgcqhkjOPQIBBggqhkjO
PQMBBwNCAASwTxal2QNhNh55++hQBaNPoxEEfqwhzst35jYdhJ8CkYG/8Kx/jAzu
kc3xCDz7gmn1icQYOwyBHofatyOZLkt5o28wbTAdBgNVHQ4EFgQUSohy/L8Joe7s
0XeWkaI1RtORm94wHwYDVR0jBBgwFoAUSohy/L8Joe7s0XeWkaI1RtORm94wDwYD
VR0TAQH/BAUwAwEB/zAaBgNVHREEEzARgglsb2NhbGhvc3SHBH8AAAEwCgYIKoZI
zj0EAwIDSAAwRQIhAPgRYG/j0e3EmNCsqQAK2SMwFs4jRNvvsMiXDvVHlqKeAiB8
bMXlvaSyF8kPTmiXgnEP4JMUdJPD51KRYraNeLldag==
-----END CERTIFICATE-----
)";

TEST(HttpTls, a_certificate_is_trusted_where_the_environment_names_it_and_else_refused) {
  const fs::path folder = testing::TempDir() + "tandem-tls-" + std::to_string(getpid());
  fs::create_directories(folder);
  ASSERT_TRUE(write_file(folder / "server.pem", kKeyAndCertificate));
  ASSERT_TRUE(write_file(folder / "server.py", kTlsServer));
  FILE* server = popen(
      ("exec python3 '" + (folder / "server.py").string() + "' '" + (folder / "server.pem").string() + "'").c_str(),
      "r");
  ASSERT_NE(server, nullptr);
  int process = 0, port = 0;
  ASSERT_EQ(fscanf(server, "%d %d", &process, &port), 2);
  const OutgoingRequest post{.url = "https://127.0.0.1:" + std::to_string(port) + "/", .body = "hello"};
  const auto ask = [&] { return http_request(post, [](const HttpHead&, std::string_view) { return Status(); }, {}); };
  const auto refused = ask();
  setenv("SSL_CERT_FILE", (folder / "server.pem").c_str(), 1);
  const auto trusted = ask();
  unsetenv("SSL_CERT_FILE");
  kill(process, SIGKILL);
  pclose(server);
  fs::remove_all(folder);
  ASSERT_FALSE(refused);
  EXPECT_EQ(refused.error().code(), Code::kUnfit);
  EXPECT_THAT(refused.error().message(), HasSubstr("certificate is not trusted"));
  ASSERT_TRUE(trusted) << trusted.error().to_string();
  EXPECT_EQ(trusted->status, 200);
}

TEST(HttpUrl, only_http_urls_without_secrets_are_taken) {
  EXPECT_TRUE(check_url("http://127.0.0.1:8000/v1").ok());
  EXPECT_TRUE(check_url("https://example.org").ok());
  for (const char* url : {"", "host:80", "ftp://example.org", "http://", "http://a b/"})
    EXPECT_EQ(check_url(url).code(), Code::kInvalid) << url;
  const auto secret = check_url("https://user:word@example.org");
  EXPECT_EQ(secret.code(), Code::kInvalid);
  EXPECT_THAT(secret.message(), testing::Not(HasSubstr("word@")));
}

}  // namespace
}  // namespace tandem::wire
