#include "wire/http_server.h"

#include <arpa/inet.h>
#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <netinet/in.h>
#include <sys/eventfd.h>
#include <sys/socket.h>
#include <unistd.h>

#include <thread>

#include "base/file.h"
#include "tests/within.h"

namespace tandem::wire {
namespace {

using namespace std::chrono_literals;
using testing::EndsWith;
using testing::HasSubstr;
using testing::IsEmpty;
using testing::Not;
using testing::StartsWith;

FileDescriptor connect_to(uint16_t port) {
  FileDescriptor socket(::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0));
  sockaddr_in where{};
  where.sin_family = AF_INET;
  where.sin_port = htons(port);
  where.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  EXPECT_EQ(connect(socket.get(), reinterpret_cast<sockaddr*>(&where), sizeof where), 0);
  const timeval patience = {30, 0};
  setsockopt(socket.get(), SOL_SOCKET, SO_RCVTIMEO, &patience, sizeof patience);
  return socket;
}

std::string read_all(const FileDescriptor& socket) {
  std::string answer;
  char buffer[4096];
  for (ssize_t n; (n = recv(socket.get(), buffer, sizeof buffer, 0)) > 0;)
    answer.append(buffer, static_cast<size_t>(n));
  return answer;
}

// Answers with the body of the request and its header x; /later when `release` says so, /never not at all. Refuses
// /closed.
class HttpServed : public testing::Test {
 protected:
  explicit HttpServed(Duration keep_alive = {}, Duration transfer = 2s)
      : server_(*HttpServer::listen("127.0.0.1", 0, limits(keep_alive, transfer))),
        wake_(eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK)) {
    server_.watch(wake_.get(), [this] {
      uint64_t count;
      EXPECT_EQ(read(wake_.get(), &count, sizeof count), 8);
      for (auto& reply : later_) reply({200, {}, "at last"});
      later_.clear();
      if (stream_) stream_->write("two");
      if (stream_) stream_->end();
    });
    handler_.refuse = [](const HttpRequest& request) -> std::optional<HttpResponse> {
      if (request.path != "/closed") return std::nullopt;
      return HttpResponse::plain(403, "closed\n");
    };
    handler_.answer = [this](const HttpRequest& request, const HttpReply& reply) {
      if (request.path == "/later") return later_.push_back(reply);
      if (request.path == "/never") return;
      if (request.path == "/stream") {
        stream_ = std::make_shared<HttpStream>();
        stream_->write("one ");
        return reply({.headers = {{"X-Number", std::to_string(request.number)}}, .stream = stream_});
      }
      reply({200,
             {{"X-Method", request.method},
              {"X-Target", request.path + " " + request.query + " " + std::string(request.header("host"))}},
             request.body + std::string(request.header("x"))});
      reply({500, {}, "a second answer"});
    };
    handler_.gone = [this](uint64_t number) { gone_ = number; };
    thread_ = std::thread([this] { EXPECT_TRUE(server_.serve(handler_, stop_)); });
  }
  ~HttpServed() override { end(); }
  void end() {
    stop_ = true;
    if (thread_.joinable()) thread_.join();
    later_.clear();
    stream_.reset();
  }
  static HttpLimits limits(Duration keep_alive, Duration transfer) {
    HttpLimits limits;
    limits.body_bytes = 10;
    limits.connections = 4;
    limits.transfer = transfer;
    limits.keep_alive = keep_alive;
    return limits;
  }
  static void say(const FileDescriptor& socket, const std::string& bytes) {
    EXPECT_EQ(send(socket.get(), bytes.data(), bytes.size(), MSG_NOSIGNAL), static_cast<ssize_t>(bytes.size()));
  }
  std::string ask(const std::string& bytes) {
    const auto socket = connect_to(server_.port());
    say(socket, bytes);
    return read_all(socket);
  }
  // One that was answered that far, and stays open.
  FileDescriptor asked(const std::string& bytes, std::string_view until) {
    auto socket = connect_to(server_.port());
    say(socket, bytes);
    std::string answer;
    char buffer[4096];
    for (ssize_t n; answer.find(until) == std::string::npos;) {
      if ((n = recv(socket.get(), buffer, sizeof buffer, 0)) <= 0) {
        ADD_FAILURE() << "no answer but " << answer;
        break;
      }
      answer.append(buffer, static_cast<size_t>(n));
    }
    return socket;
  }
  static bool is_open(const FileDescriptor& socket) {
    char byte;
    return recv(socket.get(), &byte, 1, MSG_DONTWAIT) == -1 && errno == EAGAIN;
  }
  void release() {
    const uint64_t one = 1;
    EXPECT_EQ(write(wake_.get(), &one, sizeof one), 8);
  }

  HttpServer server_;
  FileDescriptor wake_;
  std::vector<HttpReply> later_;
  std::shared_ptr<HttpStream> stream_;
  std::atomic<uint64_t> gone_{0};
  HttpHandler handler_;
  std::atomic<bool> stop_{false};
  std::thread thread_;
};

TEST_F(HttpServed, a_request_comes_whole_and_the_first_answer_counts) {
  const auto answer = ask("POST /a?b HTTP/1.1\r\nX: 1\r\nx: 2\r\nContent-Length: 5\r\n\r\nhello");
  EXPECT_THAT(answer, StartsWith("HTTP/1.1 200"));
  EXPECT_THAT(answer, HasSubstr("X-Method: POST"));
  EXPECT_THAT(answer, EndsWith("\r\n\r\nhello1, 2"));
  EXPECT_THAT(ask("HEAD / HTTP/1.1\r\nX: y\r\n\r\n"), EndsWith("Content-Length: 1\r\n\r\n"));
}

TEST_F(HttpServed, what_is_too_large_or_no_http_or_refused_has_its_status_before_the_body_is_there) {
  EXPECT_THAT(ask("POST / HTTP/1.1\r\nContent-Length: 11\r\n\r\n"), StartsWith("HTTP/1.1 413"));
  EXPECT_THAT(ask("POST / HTTP/1.1\r\nTransfer-Encoding: chunked\r\n\r\nb\r\n01234567890\r\n0\r\n\r\n"),
              StartsWith("HTTP/1.1 413"));
  EXPECT_THAT(ask(fmt::format("GET / HTTP/1.1\r\nX: {:x>9000}\r\n\r\n", "")), StartsWith("HTTP/1.1 431"));
  EXPECT_THAT(ask("nonsense\r\n\r\n"), StartsWith("HTTP/1.1 400"));
  EXPECT_THAT(ask("POST /closed HTTP/1.1\r\nContent-Length: 5\r\n\r\n"), StartsWith("HTTP/1.1 403"));
}

TEST_F(HttpServed, an_answer_may_come_later_than_any_limit_of_the_transfer) {
  const auto socket = connect_to(server_.port());
  const std::string bytes = "GET /later HTTP/1.1\r\n\r\n";
  EXPECT_EQ(send(socket.get(), bytes.data(), bytes.size(), MSG_NOSIGNAL), static_cast<ssize_t>(bytes.size()));
  // A visitor that says nothing is let go after the time of a transfer; by then the other has waited as long.
  EXPECT_THAT(read_all(connect_to(server_.port())), IsEmpty());
  release();
  EXPECT_THAT(read_all(socket), EndsWith("at last"));
}

TEST_F(HttpServed, one_that_is_let_go_unanswered_is_closed) {
  EXPECT_THAT(ask("GET /never HTTP/1.1\r\n\r\n"), IsEmpty());
}

TEST_F(HttpServed, visitors_beyond_the_limit_wait_for_a_place) {
  std::vector<FileDescriptor> silent;
  for (int i = 0; i < 4; ++i) silent.push_back(connect_to(server_.port()));
  EXPECT_THAT(ask("GET / HTTP/1.1\r\n\r\n"), StartsWith("HTTP/1.1 200"));
}

class HttpPatient : public HttpServed {
 protected:
  HttpPatient() : HttpServed({}, 600s) {}
};

TEST_F(HttpPatient, the_oldest_connection_that_has_sent_nothing_makes_room_for_another) {
  const auto begun = connect_to(server_.port());
  const std::string request = "GET /stream HTTP/1.1\r\n\r\n";
  ASSERT_EQ(send(begun.get(), request.data(), request.size(), MSG_NOSIGNAL), static_cast<ssize_t>(request.size()));
  char buffer[4096];
  std::string got;
  for (ssize_t n; got.find("one ") == std::string::npos && (n = recv(begun.get(), buffer, sizeof buffer, 0)) > 0;)
    got.append(buffer, static_cast<size_t>(n));
  std::vector<FileDescriptor> silent;
  for (int i = 0; i < 3; ++i) silent.push_back(connect_to(server_.port()));
  EXPECT_THAT(ask("GET / HTTP/1.1\r\n\r\n"), StartsWith("HTTP/1.1 200"));
  EXPECT_EQ(recv(silent[0].get(), buffer, sizeof buffer, 0), 0) << "it is closed";
  EXPECT_EQ(recv(silent[2].get(), buffer, sizeof buffer, MSG_DONTWAIT), -1) << "the last is not";
  release();
  EXPECT_THAT(read_all(begun), HasSubstr("two"));
}

TEST_F(HttpPatient, connections_that_have_sent_a_part_of_a_request_are_no_more_than_the_limit) {
  const auto sockets = [] {
    size_t count = 0;
    std::error_code error;
    for (const auto& entry : fs::directory_iterator("/proc/self/fd"))
      count += fs::read_symlink(entry.path(), error).string().starts_with("socket:");
    return count;
  };
  const size_t before = sockets();
  std::vector<FileDescriptor> parts;
  for (int i = 0; i < 16; ++i) {
    parts.push_back(connect_to(server_.port()));
    ASSERT_EQ(send(parts.back().get(), "G", 1, MSG_NOSIGNAL), 1);
  }
  constexpr size_t kLimit = 4, kWaiting = 1;
  EXPECT_TRUE(within(20s, [&] { return sockets() >= before + parts.size() + kLimit; }));
  EXPECT_FALSE(within(500ms, [&] { return sockets() > before + parts.size() + kLimit + kWaiting; }));
  parts.clear();
  EXPECT_THAT(ask("GET / HTTP/1.1\r\n\r\n"), StartsWith("HTTP/1.1 200"));
}

TEST_F(HttpPatient, clients_that_keep_a_connection_open_behind_the_last_answer_make_room) {
  std::vector<FileDescriptor> told;
  for (int i = 0; i < 4; ++i) told.push_back(asked("nonsense\r\n\r\n", "not HTTP\n"));
  EXPECT_THAT(ask("GET / HTTP/1.1\r\n\r\n"), StartsWith("HTTP/1.1 200"));
}

class HttpPatientKept : public HttpServed {
 protected:
  HttpPatientKept() : HttpServed(600s, 600s) {}
};

TEST_F(HttpPatientKept, what_lingers_makes_room_before_what_is_idle_and_that_before_what_is_silent) {
  const std::string kept = "GET / HTTP/1.1\r\nX: here\r\n\r\n", end = "\r\n\r\nhere";
  const auto silent = connect_to(server_.port());
  const auto idle = asked(kept, end);
  const auto lingers = asked("GET / HTTP/1.1\r\nX: here\r\nConnection: close\r\n\r\n", end);
  const auto busy = asked("GET /stream HTTP/1.1\r\nConnection: close\r\n\r\n", "one ");

  const auto first = asked(kept, end);
  EXPECT_TRUE(is_open(idle));
  EXPECT_TRUE(within(30s, [&] { return send(lingers.get(), "x", 1, MSG_NOSIGNAL) == -1; })) << "it is closed";
  const auto second = asked(kept, end);
  char byte;
  EXPECT_EQ(recv(idle.get(), &byte, 1, 0), 0) << "the oldest idle one is closed";
  EXPECT_TRUE(is_open(first));
  EXPECT_TRUE(is_open(silent));
  // With a byte of a request they are idle no more, whether it was read or not.
  say(first, "G");
  say(second, "G");
  const auto third = asked(kept, end);
  EXPECT_EQ(recv(silent.get(), &byte, 1, 0), 0) << "the silent one is closed";
  EXPECT_TRUE(is_open(first));
  EXPECT_TRUE(is_open(second));
  release();
  EXPECT_THAT(read_all(busy), HasSubstr("two"));
}

TEST_F(HttpServed, empty_lines_before_a_request_are_passed_over) {
  EXPECT_THAT(ask("\r\n\r\nGET / HTTP/1.1\r\nX: y\r\n\r\n"), EndsWith("\r\n\r\ny"));
  const auto socket = connect_to(server_.port());
  say(socket, "\r");
  say(socket, "\nGET / HTTP/1.1\r\nX: y\r\n\r\n");
  EXPECT_THAT(read_all(socket), EndsWith("\r\n\r\ny"));
  EXPECT_THAT(ask("\rGET / HTTP/1.1\r\n\r\n"), StartsWith("HTTP/1.1 400"));
}

TEST_F(HttpServed, a_target_with_scheme_and_host_is_a_path_on_that_host) {
  EXPECT_THAT(ask("GET http://a.example:80/b?c=/d HTTP/1.1\r\nHost: x\r\n\r\n"),
              HasSubstr("X-Target: /b c=/d a.example:80\r\n"));
  EXPECT_THAT(ask("GET HTTPS://a?c HTTP/1.1\r\n\r\n"), HasSubstr("X-Target: / c a\r\n"));
  EXPECT_THAT(ask("GET /http://a HTTP/1.1\r\nHost: x\r\n\r\n"), HasSubstr("X-Target: /http://a  x\r\n"));
}

TEST_F(HttpServed, an_answer_can_still_be_given_to_a_client_that_has_closed_its_side) {
  const auto socket = connect_to(server_.port());
  say(socket, "POST /later HTTP/1.1\r\nContent-Length: 2\r\n\r\nab");
  ASSERT_EQ(::shutdown(socket.get(), SHUT_WR), 0);
  EXPECT_TRUE(within(30s, [&] { return gone_ != 0; }));
  release();
  EXPECT_THAT(read_all(socket), EndsWith("at last"));
}

class HttpKept : public HttpServed {
 protected:
  HttpKept() : HttpServed(20s) {}
};

TEST_F(HttpKept, a_connection_brings_one_request_after_the_other) {
  const auto socket = connect_to(server_.port());
  const std::string two =
      "POST /a HTTP/1.1\r\nContent-Length: 3\r\n\r\none\r\nPOST /b HTTP/1.1\r\nContent-Length: 3\r\n\r\ntwo";
  EXPECT_EQ(send(socket.get(), two.data(), two.size(), MSG_NOSIGNAL), static_cast<ssize_t>(two.size()));
  std::string answers;
  char buffer[4096];
  while (answers.find("two") == std::string::npos) {
    const ssize_t n = recv(socket.get(), buffer, sizeof buffer, 0);
    ASSERT_GT(n, 0) << answers;
    answers.append(buffer, static_cast<size_t>(n));
  }
  EXPECT_LT(answers.find("one"), answers.find("two"));
  const std::string last = "GET /c HTTP/1.1\r\nConnection: close\r\n\r\n";
  EXPECT_EQ(send(socket.get(), last.data(), last.size(), MSG_NOSIGNAL), static_cast<ssize_t>(last.size()));
  EXPECT_THAT(read_all(socket), StartsWith("HTTP/1.1 200"));
}

TEST_F(HttpServed, a_stream_is_sent_while_it_is_written) {
  const auto socket = connect_to(server_.port());
  const std::string bytes = "GET /stream HTTP/1.1\r\nConnection: close\r\n\r\n";
  EXPECT_EQ(send(socket.get(), bytes.data(), bytes.size(), MSG_NOSIGNAL), static_cast<ssize_t>(bytes.size()));
  std::string begin;
  char buffer[4096];
  while (begin.find("one ") == std::string::npos) {
    const ssize_t n = recv(socket.get(), buffer, sizeof buffer, 0);
    ASSERT_GT(n, 0) << begin;
    begin.append(buffer, static_cast<size_t>(n));
  }
  EXPECT_THAT(begin, HasSubstr("Transfer-Encoding: chunked"));
  release();
  EXPECT_THAT(read_all(socket), EndsWith("3\r\ntwo\r\n0\r\n\r\n"));
}

TEST_F(HttpServed, a_client_of_http_1_0_gets_a_stream_that_ends_with_the_connection) {
  const auto socket = connect_to(server_.port());
  const std::string bytes = "GET /stream HTTP/1.0\r\n\r\n";
  EXPECT_EQ(send(socket.get(), bytes.data(), bytes.size(), MSG_NOSIGNAL), static_cast<ssize_t>(bytes.size()));
  char byte;
  ASSERT_EQ(recv(socket.get(), &byte, 1, MSG_PEEK), 1);
  release();
  EXPECT_THAT(read_all(socket), EndsWith("\r\n\r\none two"));
}

TEST_F(HttpServed, it_is_told_when_a_client_goes_away_before_the_end_of_its_answer) {
  {
    const auto socket = connect_to(server_.port());
    const std::string bytes = "GET /stream HTTP/1.1\r\n\r\n";
    EXPECT_EQ(send(socket.get(), bytes.data(), bytes.size(), MSG_NOSIGNAL), static_cast<ssize_t>(bytes.size()));
    char byte;
    ASSERT_EQ(recv(socket.get(), &byte, 1, 0), 1);
    EXPECT_EQ(gone_, 0u);
  }
  EXPECT_TRUE(within(30s, [&] { return gone_ != 0; }));
  gone_ = 0;
  {
    const auto socket = connect_to(server_.port());
    const std::string bytes = "GET /later HTTP/1.1\r\n\r\n";
    EXPECT_EQ(send(socket.get(), bytes.data(), bytes.size(), MSG_NOSIGNAL), static_cast<ssize_t>(bytes.size()));
  }
  EXPECT_TRUE(within(30s, [&] { return gone_ != 0; }));
}

TEST_F(HttpServed, it_ends_while_visitors_wait) {
  const auto socket = connect_to(server_.port());
  const std::string bytes = "GET /later HTTP/1.1\r\n\r\n";
  EXPECT_EQ(send(socket.get(), bytes.data(), bytes.size(), MSG_NOSIGNAL), static_cast<ssize_t>(bytes.size()));
  ask("GET / HTTP/1.1\r\n\r\n");
  end();
  EXPECT_THAT(read_all(socket), Not(HasSubstr("200")));
}

TEST(HttpServer, an_address_that_is_none_and_a_port_that_is_taken_are_named) {
  EXPECT_EQ(HttpServer::listen("nowhere", 0, {}).error().code(), Code::kInvalid);
  const auto first = HttpServer::listen("127.0.0.1", 0, {});
  ASSERT_TRUE(first);
  const auto second = HttpServer::listen("127.0.0.1", first->port(), {});
  EXPECT_EQ(second.error().code(), Code::kUnavailable);
  EXPECT_THAT(second.error().message(), HasSubstr(std::to_string(first->port())));
}

}  // namespace
}  // namespace tandem::wire
