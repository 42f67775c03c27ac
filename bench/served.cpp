#include "bench/served.h"

#include <arpa/inet.h>
#include <fmt/format.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <sys/socket.h>

#include <chrono>

namespace tandem::bench {

using namespace std::chrono_literals;

Result<FileDescriptor> connect_to(uint16_t port) {
  FileDescriptor socket(::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0));
  if (!socket) return fail(Status::from_errno("socket", errno));
  sockaddr_in where{};
  where.sin_family = AF_INET;
  where.sin_port = htons(port);
  where.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  if (::connect(socket.get(), reinterpret_cast<sockaddr*>(&where), sizeof where) != 0)
    return fail(Status::from_errno("connect", errno));
  const int on = 1;
  ::setsockopt(socket.get(), IPPROTO_TCP, TCP_NODELAY, &on, sizeof on);
  return socket;
}

std::string post(const std::string& path, const Json& body, std::string_view priority) {
  const std::string text = dump_json(body);
  const std::string header = priority.empty() ? "" : fmt::format("X-Tandem-Priority: {}\r\n", priority);
  return fmt::format(
      "POST {} HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\n{}Content-Length: {}\r\n\r\n{}", path,
      header, text.size(), text);
}

bool ends_whole(std::string_view answer) {
  const size_t head = answer.find("\r\n\r\n");
  if (head == std::string_view::npos) return false;
  constexpr std::string_view kLength = "Content-Length: ";
  const size_t length = answer.find(kLength);
  if (length == std::string_view::npos || length > head) return answer.ends_with("0\r\n\r\n");
  return answer.size() >= head + 4 + std::stoul(std::string(answer.substr(length + kLength.size(), 12)));
}

Result<std::unique_ptr<Served>> Served::start(const Settings& settings, const Admitted& admitted) {
  serve::ServerSettings wanted{
      .front = {.port = 0}, .threads = settings.threads, .drain_seconds = 0, .version = "bench"};
  wanted.models.push_back({.names = {"model"},
                           .directory = settings.model,
                           .format = settings.weights,
                           .max_tokens = 512,
                           .queue = admitted.queue,
                           .longest_wait = admitted.longest_wait,
                           .place = {.threads = settings.threads}});
  auto served = std::unique_ptr<Served>(new Served);
  served->server_ = TRY(serve::Server::listen(std::move(wanted), served->clock_));
  served->thread_ = std::thread([raw = served.get()] {
    raw->status_ = raw->server_->serve([raw] { raw->ready_ = true; }, raw->stop_, raw->read_keys_);
    raw->ended_ = true;
  });
  while (!served->ready_ && !served->ended_) std::this_thread::sleep_for(1ms);
  if (served->ended_) return fail(served->status_);
  return served;
}

Served::~Served() {
  stop_ = true;
  if (thread_.joinable()) thread_.join();
}

uint16_t Served::port() const {
  return static_cast<uint16_t>(std::stoi(server_->url().substr(server_->url().rfind(':') + 1)));
}

}  // namespace tandem::bench
