#include "wire/http_server.h"

#include <fcntl.h>
#include <fmt/format.h>

#include <boost/asio/executor_work_guard.hpp>
#include <boost/asio/io_context.hpp>
#include <boost/asio/ip/tcp.hpp>
#include <boost/asio/posix/stream_descriptor.hpp>
#include <boost/beast/core/error.hpp>
#include <optional>
#include <utility>

#include "wire/http_places.h"
#include "wire/http_visit.h"
#include "wire/tls.h"
#include "wire/tls_pump.h"

namespace tandem::wire {

using namespace std::chrono_literals;
namespace asio = boost::asio;
namespace beast = boost::beast;
using asio::ip::tcp;

namespace {

constexpr auto kTurn = 100ms;  // in which `stop` is seen
constexpr auto kLastAnswers = 2s;

// A program that this process starts does not hold the connection open.
void keep_from_children(int descriptor) { ::fcntl(descriptor, F_SETFD, FD_CLOEXEC); }

// Says when a descriptor is readable; lets go of it, without closing it, when it goes itself.
class Watched : public std::enable_shared_from_this<Watched> {
 public:
  Watched(asio::io_context& context, int descriptor, std::function<void()> readable)
      : descriptor_(descriptor), stream_(context, descriptor), readable_(std::move(readable)) {}
  ~Watched() {
    if (!ended_) stream_.release();
  }
  void wait() {
    stream_.async_wait(asio::posix::stream_descriptor::wait_read, [self = shared_from_this()](beast::error_code error) {
      if (error || self->ended_) return;
      self->readable_();
      if (!self->ended_) self->wait();
    });
  }
  void end() {
    ended_ = true;
    beast::error_code ignored;
    stream_.cancel(ignored);
    stream_.release();
  }
  int descriptor() const { return descriptor_; }

 private:
  bool ended_ = false;
  const int descriptor_;
  asio::posix::stream_descriptor stream_;
  const std::function<void()> readable_;
};

}  // namespace

struct HttpServer::Listening {
  explicit Listening(const HttpLimits& all) : limits(all), places(all.connections) {}

  const HttpLimits limits;
  uint64_t numbers = 0;  // of requests
  HttpPlaces places;
  asio::io_context context{1};
  tcp::acceptor acceptor{context};
  std::vector<std::shared_ptr<Watched>> watched;
  bool accepting = false;
  std::optional<tcp::socket> waiting;  // came when the one, in whose place it was let in, had begun to speak
  std::shared_ptr<Tls> tls;            // null: plain

  void enter(tcp::socket socket, const HttpHandler& handler) {
    beast::error_code ignored;
    const auto end = socket.remote_endpoint(ignored);
    const std::string peer = ignored ? "" : end.address().to_string();
    socket.set_option(tcp::no_delay(true), ignored);
    const auto visit = [this, peer, &handler](PlainSocket inside, std::function<bool()> more_comes) {
      begin_visit(std::move(inside), std::move(more_comes), peer, limits, handler, numbers, places);
    };
    if (!tls) return visit(PlainSocket(std::move(socket)), nullptr);
    // Taken for as long as the pump holds what it calls.
    const auto place = std::make_shared<HttpPlaces::Place>(places);
    place->use(HttpPlaces::Use::kSilent);
    place->leave_by(begin_tls(
        context, std::move(socket), tls->context(), limits.transfer, [place] { place->use(HttpPlaces::Use::kBusy); },
        [visit, place](PlainSocket inside, std::function<bool()> more_comes) {
          visit(std::move(inside), std::move(more_comes));
        }));
  }
  void accept_next(const HttpHandler& handler) {
    if (waiting && places.make_room()) enter(*std::exchange(waiting, std::nullopt), handler);
    if (waiting || accepting || !acceptor.is_open() || (places.is_full() && !places.may_make_room())) return;
    accepting = true;
    acceptor.async_accept([this, &handler](beast::error_code error, tcp::socket socket) {
      accepting = false;
      if (error == asio::error::operation_aborted) return;
      if (error) return;  // tried again at the next turn: there may be no descriptors
      keep_from_children(socket.native_handle());
      waiting = std::move(socket);
      accept_next(handler);
    });
  }
};

std::string_view HttpRequest::header(const std::string& name) const {
  const auto found = headers.find(name);
  return found == headers.end() ? std::string_view() : found->second;
}

void HttpStream::write(std::string_view piece) {
  if (state_ != State::kOpen || piece.empty()) return;
  pieces_ += piece;
  if (const auto changed = changed_) changed();
}

void HttpStream::end() {
  if (state_ != State::kOpen) return;
  state_ = State::kEnded;
  if (const auto changed = changed_) changed();
}

void HttpStream::abandon() {
  if (state_ != State::kOpen) return;
  state_ = State::kAbandoned;
  if (const auto changed = changed_) changed();
}

HttpResponse HttpResponse::plain(int status, std::string text) {
  return {status, {{"Content-Type", "text/plain; charset=utf-8"}}, std::move(text)};
}

HttpServer::HttpServer(std::unique_ptr<Listening> listening) : listening_(std::move(listening)) {}
HttpServer::HttpServer(HttpServer&&) noexcept = default;
HttpServer::~HttpServer() = default;

Result<HttpServer> HttpServer::listen(const std::string& address, uint16_t port, const HttpLimits& limits,
                                      std::shared_ptr<Tls> tls) {
  auto listening = std::make_unique<Listening>(limits);
  listening->tls = std::move(tls);
  beast::error_code error;
  const auto number = asio::ip::make_address(address, error);
  if (error) return fail(Status::invalid(fmt::format("\"{}\" is not an address such as 127.0.0.1", address)));
  const tcp::endpoint where(number, port);
  auto& acceptor = listening->acceptor;
  acceptor.open(where.protocol(), error);
  if (!error) keep_from_children(acceptor.native_handle());
  if (!error) acceptor.set_option(asio::socket_base::reuse_address(true), error);
  if (!error) acceptor.bind(where, error);
  if (!error) acceptor.listen(asio::socket_base::max_listen_connections, error);
  if (error) {
    return fail(Status::unavailable(fmt::format("{}:{} cannot be listened on: {}", address, port, error.message())));
  }
  return HttpServer(std::move(listening));
}

uint16_t HttpServer::port() const { return listening_->acceptor.local_endpoint().port(); }

void HttpServer::watch(int descriptor, std::function<void()> readable) {
  listening_->watched.push_back(std::make_shared<Watched>(listening_->context, descriptor, std::move(readable)));
  listening_->watched.back()->wait();
}

void HttpServer::unwatch(int descriptor) {
  std::erase_if(listening_->watched, [&](const auto& watched) {
    if (watched->descriptor() != descriptor) return false;
    watched->end();
    return true;
  });
}

Status HttpServer::serve(const HttpHandler& handler, const std::atomic<bool>& stop) {
  auto work = asio::make_work_guard(listening_->context);  // or a turn without visits would be no wait
  while (!stop) {
    listening_->accept_next(handler);
    listening_->context.run_for(kTurn);
    if (handler.tick) handler.tick();
  }
  work.reset();
  beast::error_code ignored;
  listening_->acceptor.close(ignored);
  listening_->waiting.reset();
  listening_->places.leave(HttpPlaces::Use::kIdle);
  listening_->places.leave(HttpPlaces::Use::kSilent);
  for (auto& watched : listening_->watched) watched->end();
  listening_->watched.clear();
  listening_->context.run_for(kLastAnswers);
  return {};
}

}  // namespace tandem::wire
