// The proxy with sockets of this machine in place of a sandbox's; sandboxes themselves are in sandbox_network_test.cpp.
#include "envs/network/proxy.h"

#include <arpa/inet.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <netinet/in.h>
#include <poll.h>
#include <sys/socket.h>
#include <unistd.h>

#include <mutex>
#include <thread>

#include "tests/envs/sandbox_fixture.h"

namespace tandem::envs {
namespace {

using testing::HasSubstr;
using testing::StartsWith;

constexpr int kProxyPatienceMilliseconds = 20'000;

struct Listening {
  FileDescriptor socket;
  uint16_t port = 0;
};

Listening listen_here() {
  Listening here{FileDescriptor(socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0))};
  sockaddr_in address{};
  address.sin_family = AF_INET;
  address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  socklen_t size = sizeof address;
  if (bind(here.socket.get(), reinterpret_cast<sockaddr*>(&address), size) != 0 || listen(here.socket.get(), 64) != 0 ||
      getsockname(here.socket.get(), reinterpret_cast<sockaddr*>(&address), &size) != 0)
    abort();
  here.port = ntohs(address.sin_port);
  return here;
}

FileDescriptor connect_to(uint16_t port) {
  FileDescriptor client(socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0));
  sockaddr_in address{};
  address.sin_family = AF_INET;
  address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  address.sin_port = htons(port);
  EXPECT_EQ(connect(client.get(), reinterpret_cast<sockaddr*>(&address), sizeof address), 0);
  return client;
}

void say(const FileDescriptor& socket, std::string_view bytes) {
  EXPECT_EQ(send(socket.get(), bytes.data(), bytes.size(), MSG_NOSIGNAL), static_cast<ssize_t>(bytes.size()));
}

bool readable(const FileDescriptor& socket) {
  pollfd wait = {socket.get(), POLLIN, 0};
  return poll(&wait, 1, kProxyPatienceMilliseconds) > 0;
}

// What comes until `end` has come, or the other side is done.
std::string hear(const FileDescriptor& socket, std::string_view end = "(never said)") {
  std::string heard;
  char bytes[65536];
  while (heard.find(end) == std::string::npos && readable(socket)) {
    const ssize_t count = recv(socket.get(), bytes, sizeof bytes, 0);
    if (count <= 0) break;
    heard.append(bytes, static_cast<size_t>(count));
  }
  return heard;
}

class Proxy : public testing::Test {
 protected:
  Proxy() : host_(listen_here()) {}

  // `name` is resolved to this machine, which only the list lets it be.
  void open(const std::vector<std::string>& entries) {
    auto inside = listen_here();
    inner_port_ = inside.port;
    proxy_ = std::make_unique<NetworkProxy>(limits_, [this](const std::string& name) -> Result<std::vector<Address>> {
      const auto found = names_.find(name);
      if (found == names_.end()) return fail(Status::unavailable(name + ": there is no such name"));
      return found->second;
    });
    proxy_listener_ = proxy_->open(std::move(inside.socket), *AllowList::parse(entries), [this](const NetworkUse& use) {
      std::lock_guard lock(mutex_);
      uses_.push_back(use);
    });
  }
  FileDescriptor client() const { return connect_to(inner_port_); }
  std::string ask(const std::string& request) const {
    const auto socket = client();
    say(socket, request);
    return hear(socket);
  }
  FileDescriptor accepted() const {
    EXPECT_TRUE(readable(host_.socket));
    return FileDescriptor(accept4(host_.socket.get(), nullptr, nullptr, SOCK_CLOEXEC));
  }
  std::string host() const { return "127.0.0.1:" + std::to_string(host_.port); }
  NetworkUse last_use(size_t count) {
    EXPECT_TRUE(within(30s, [&] {
      std::lock_guard lock(mutex_);
      return uses_.size() >= count;
    }));
    std::lock_guard lock(mutex_);
    return uses_.empty() ? NetworkUse() : uses_.back();
  }

  ProxyLimits limits_;
  std::map<std::string, std::vector<Address>> names_;
  Listening host_;
  uint16_t inner_port_ = 0;
  std::mutex mutex_;
  std::vector<NetworkUse> uses_;
  std::unique_ptr<NetworkProxy> proxy_;
  std::unique_ptr<NetworkProxy::Listener> proxy_listener_;
};

TEST_F(Proxy, a_request_goes_to_its_host_and_the_answer_comes_back) {
  names_["a.example"] = {*parse_address("127.0.0.1")};
  open({"a.example:" + std::to_string(host_.port), host()});
  const auto socket = client();
  say(socket, "POST http://a.example:" + std::to_string(host_.port) + "/x HTTP/1.1\r\nContent-Length: 5\r\n\r\nhel");
  say(socket, "loGET /smuggled HTTP/1.1\r\n\r\n");
  const auto at_host = accepted();
  const auto heard = hear(at_host, "hello");
  EXPECT_EQ(heard, "POST /x HTTP/1.1\r\nHost: a.example:" + std::to_string(host_.port) +
                       "\r\nContent-Length: 5\r\nConnection: close\r\n\r\nhello");
  say(at_host, "HTTP/1.1 200 OK\r\n\r\nwell");
  shutdown(at_host.get(), SHUT_RDWR);
  EXPECT_EQ(hear(socket), "HTTP/1.1 200 OK\r\n\r\nwell");
  const auto use = last_use(1);
  EXPECT_EQ(use.host, "a.example");
  EXPECT_EQ(use.refused, "");
  EXPECT_EQ(use.sent, heard.size());
  EXPECT_EQ(use.received, 23u);
  EXPECT_THAT(to_string(use), StartsWith("POST a.example:" + std::to_string(host_.port) + ", "));
}

TEST_F(Proxy, a_tunnel_carries_bytes_both_ways_until_both_sides_end) {
  open({host()});
  const auto socket = client();
  say(socket, "CONNECT " + host() + " HTTP/1.1\r\n\r\nearly ");
  EXPECT_EQ(hear(socket, "\r\n\r\n"), "HTTP/1.1 200 Connection established\r\n\r\n");
  const auto at_host = accepted();
  const std::string much(3 << 20, 'x');
  std::thread sender([&] {
    say(socket, much);
    shutdown(socket.get(), SHUT_WR);
  });
  EXPECT_TRUE(hear(at_host) == "early " + much);
  sender.join();
  say(at_host, "answer");
  shutdown(at_host.get(), SHUT_WR);
  EXPECT_EQ(hear(socket), "answer");
  EXPECT_EQ(last_use(1).sent, much.size() + 6);
}

TEST_F(Proxy, a_name_that_leads_to_a_closed_address_is_refused) {
  names_["metadata.example"] = {*parse_address("169.254.169.254")};
  names_["inner.example"] = {*parse_address("10.0.0.1"), *parse_address("::1"), *parse_address("127.0.0.1")};
  open({"metadata.example", "inner.example", "*.example:" + std::to_string(host_.port)});
  const auto refused = ask("GET http://metadata.example/latest HTTP/1.1\r\n\r\n");
  const std::string why =
      "refused by the sandbox's proxy: the address of metadata.example: 169.254.169.254 is a link-local address, where "
      "clouds serve their metadata";
  EXPECT_THAT(refused, StartsWith("HTTP/1.1 403 " + why + "\r\n"));
  EXPECT_THAT(refused, HasSubstr("\r\n\r\n" + why + "\n"));
  EXPECT_THAT(ask("CONNECT metadata.example:443 HTTP/1.1\r\n\r\n"), StartsWith("HTTP/1.1 403 "));
  EXPECT_THAT(ask("CONNECT inner.example:" + std::to_string(host_.port) + " HTTP/1.1\r\n\r\n"),
              StartsWith("HTTP/1.1 403 "));
  EXPECT_EQ(last_use(3).refused.substr(0, 14), "the address of");
}

TEST_F(Proxy, hosts_that_are_not_on_the_list_are_not_even_resolved) {
  open({"a.example"});
  names_["b.example"] = {*parse_address("127.0.0.1")};
  EXPECT_THAT(ask("GET http://b.example/ HTTP/1.1\r\n\r\n"),
              HasSubstr("b.example:80 is not among the hosts that are open here: a.example"));
  EXPECT_THAT(ask("GET http://169.254.169.254/ HTTP/1.1\r\n\r\n"), StartsWith("HTTP/1.1 403 "));
  EXPECT_THAT(ask("GET http://2852039166/ HTTP/1.1\r\n\r\n"), StartsWith("HTTP/1.1 403 "));
  EXPECT_THAT(ask("GET http://a.example/ HTTP/1.1\r\n\r\n"),
              StartsWith("HTTP/1.1 502 refused by the sandbox's proxy: a.example: there is no such name"));
  EXPECT_THAT(ask("GET / HTTP/1.1\r\n\r\n"), StartsWith("HTTP/1.1 400 "));
  EXPECT_THAT(ask("GET http://a.example/" + std::string(20'000, 'x')), StartsWith("HTTP/1.1 431 "));
}

TEST_F(Proxy, connections_bytes_and_time_are_bounded) {
  limits_.connections = 1;
  limits_.bytes = 10'000;
  limits_.head = std::chrono::milliseconds(2000);
  open({host()});
  {
    const auto slow = client();
    say(slow, "GET http://");
    EXPECT_THAT(ask("GET http://a.example/ HTTP/1.1\r\n\r\n"), "");  // one at a time
    EXPECT_THAT(hear(slow), StartsWith("HTTP/1.1 408 "));
  }
  FileDescriptor socket;
  // The slow one is still on its way out for a moment.
  EXPECT_TRUE(within(30s, [&] {
    socket = client();
    if (send(socket.get(), "CONNECT ", 8, MSG_NOSIGNAL) != 8) return false;
    const std::string rest = host() + " HTTP/1.1\r\n\r\n";
    if (send(socket.get(), rest.data(), rest.size(), MSG_NOSIGNAL) < 0) return false;
    return !hear(socket, "\r\n\r\n").empty();
  }));
  const auto at_host = accepted();
  const std::string much(1 << 20, 'x');
  ASSERT_GT(send(socket.get(), much.data(), much.size(), MSG_NOSIGNAL | MSG_DONTWAIT), 0);
  EXPECT_LT(hear(at_host).size(), much.size());
  EXPECT_TRUE(within(30s, [&] {
    std::lock_guard lock(mutex_);
    return !uses_.empty() && uses_.back().cut == "the sandbox has used up its bytes";
  }));
  EXPECT_TRUE(within(30s, [&] {
    return ask("CONNECT " + host() + " HTTP/1.1\r\n\r\n").find("used up its bytes") != std::string::npos;
  }));
}

TEST_F(Proxy, a_door_that_closes_ends_what_goes_through_it) {
  const size_t before = count_entries("/proc/self/fd");
  open({host()});
  const auto socket = client();
  say(socket, "CONNECT " + host() + " HTTP/1.1\r\n\r\n");
  hear(socket, "\r\n\r\n");
  const auto at_host = accepted();
  proxy_listener_.reset();
  EXPECT_EQ(hear(at_host), "");
  EXPECT_EQ(hear(socket), "");
  EXPECT_EQ(last_use(1).cut, "the sandbox has ended");
  proxy_.reset();
  EXPECT_EQ(count_entries("/proc/self/fd"), before + 2);  // the two of this test
}

}  // namespace
}  // namespace tandem::envs
