#include "wire/http_server.h"

#include <fmt/format.h>

#include <algorithm>
#include <boost/asio/executor_work_guard.hpp>
#include <boost/asio/io_context.hpp>
#include <boost/asio/ip/tcp.hpp>
#include <boost/asio/posix/stream_descriptor.hpp>
#include <boost/beast/core.hpp>
#include <boost/beast/http.hpp>
#include <cctype>

namespace tandem::wire {

using namespace std::chrono_literals;
namespace asio = boost::asio;
namespace beast = boost::beast;
namespace http = boost::beast::http;
using asio::ip::tcp;

namespace {

constexpr auto kTurn = 100ms;  // in which `stop` is seen
constexpr auto kLastAnswers = 2s;

HttpRequest request_of(const http::request<http::string_body>& message) {
  HttpRequest request;
  request.method = std::string(message.method_string());
  const std::string target(message.target());
  request.path = target.substr(0, target.find('?'));
  for (const auto& field : message) {
    std::string name(field.name_string());
    std::transform(name.begin(), name.end(), name.begin(), [](unsigned char c) { return std::tolower(c); });
    auto& value = request.headers[name];
    value += (value.empty() ? "" : ", ") + std::string(field.value());
  }
  return request;
}

// One visitor, one request, one answer.
class Visit : public std::enable_shared_from_this<Visit> {
 public:
  Visit(tcp::socket socket, const HttpLimits& limits, const HttpHandler& handler, std::function<void()> ended)
      : stream_(std::move(socket)), limits_(limits), handler_(handler), ended_(std::move(ended)) {
    parser_.header_limit(static_cast<uint32_t>(limits.header_bytes));
    parser_.body_limit(limits.body_bytes);
  }
  ~Visit() { ended_(); }

  void start() {
    stream_.expires_after(limits_.transfer);
    http::async_read_header(stream_, buffer_, parser_, [self = shared_from_this()](beast::error_code error, size_t) {
      error ? self->send_error(error) : self->admit();
    });
  }

 private:
  void admit() {
    request_ = request_of(parser_.get());
    head_only_ = request_.method == "HEAD";
    if (handler_.refuse) {
      if (auto refusal = handler_.refuse(request_)) return send(std::move(*refusal));
    }
    http::async_read(stream_, buffer_, parser_, [self = shared_from_this()](beast::error_code error, size_t) {
      error ? self->send_error(error) : self->answer();
    });
  }

  void answer() {
    stream_.expires_never();  // how long an answer takes is for the handler to bound
    request_.body = std::move(parser_.get().body());
    handler_.answer(std::move(request_), [self = shared_from_this()](HttpResponse response) {
      if (!std::exchange(self->answered_, true)) self->send(std::move(response));
    });
  }

  // Of one that ended in the middle, or took too long, nothing is said.
  void send_error(beast::error_code error) {
    if (error == http::error::body_limit) return send(HttpResponse::plain(413, "the body is too large\n"));
    if (error == http::error::header_limit) return send(HttpResponse::plain(431, "the header is too large\n"));
    if (error.category() == beast::error_code(http::error::bad_method).category() &&
        error != http::error::end_of_stream && error != http::error::partial_message) {
      send(HttpResponse::plain(400, "this is not HTTP\n"));
    }
  }

  void send(HttpResponse response) {
    response_.version(11);
    response_.result(static_cast<unsigned>(response.status));
    response_.keep_alive(false);
    for (const auto& [name, value] : response.headers) response_.set(name, value);
    response_.body() = std::move(response.body);
    response_.prepare_payload();
    if (head_only_) response_.body().clear();
    stream_.expires_after(limits_.transfer);
    http::async_write(stream_, response_, [self = shared_from_this()](beast::error_code error, size_t) {
      if (error) return;
      beast::error_code ignored;
      self->stream_.socket().shutdown(tcp::socket::shutdown_send, ignored);
      self->await_close();
    });
  }

  // Closed while the visitor still sends, the connection would be reset and the answer perhaps never read.
  void await_close() {
    buffer_.clear();
    stream_.async_read_some(buffer_.prepare(4096), [self = shared_from_this()](beast::error_code error, size_t) {
      if (!error) self->await_close();
    });
  }

  beast::tcp_stream stream_;
  const HttpLimits& limits_;
  const HttpHandler& handler_;
  const std::function<void()> ended_;
  beast::flat_buffer buffer_;
  http::request_parser<http::string_body> parser_;
  HttpRequest request_;
  http::response<http::string_body> response_;
  bool head_only_ = false, answered_ = false;
};

// Says when a descriptor is readable; lets go of it, without closing it, when it goes itself.
class Watched : public std::enable_shared_from_this<Watched> {
 public:
  Watched(asio::io_context& context, int descriptor, std::function<void()> readable)
      : stream_(context, descriptor), readable_(std::move(readable)) {}
  ~Watched() { stream_.release(); }
  void wait() {
    stream_.async_wait(asio::posix::stream_descriptor::wait_read, [self = shared_from_this()](beast::error_code error) {
      if (error) return;
      self->readable_();
      self->wait();
    });
  }
  void end() {
    beast::error_code ignored;
    stream_.cancel(ignored);
  }

 private:
  asio::posix::stream_descriptor stream_;
  const std::function<void()> readable_;
};

}  // namespace

struct HttpServer::Listening {
  HttpLimits limits;
  size_t visits = 0;
  asio::io_context context{1};
  tcp::acceptor acceptor{context};
  std::vector<std::shared_ptr<Watched>> watched;
  bool accepting = false;

  void accept_next(const HttpHandler& handler) {
    if (accepting || visits >= limits.connections || !acceptor.is_open()) return;
    accepting = true;
    acceptor.async_accept([this, &handler](beast::error_code error, tcp::socket socket) {
      accepting = false;
      if (error == asio::error::operation_aborted) return;
      if (!error) {
        ++visits;
        std::make_shared<Visit>(std::move(socket), limits, handler, [this] { --visits; })->start();
      }
      accept_next(handler);
    });
  }
};

std::string_view HttpRequest::header(const std::string& name) const {
  const auto found = headers.find(name);
  return found == headers.end() ? std::string_view() : found->second;
}

HttpResponse HttpResponse::plain(int status, std::string text) {
  return {status, {{"Content-Type", "text/plain; charset=utf-8"}}, std::move(text)};
}

HttpServer::HttpServer(std::unique_ptr<Listening> listening) : listening_(std::move(listening)) {}
HttpServer::HttpServer(HttpServer&&) noexcept = default;
HttpServer::~HttpServer() = default;

Result<HttpServer> HttpServer::listen(const std::string& address, uint16_t port, const HttpLimits& limits) {
  auto listening = std::make_unique<Listening>();
  listening->limits = limits;
  beast::error_code error;
  const auto number = asio::ip::make_address(address, error);
  if (error) return fail(Status::invalid(fmt::format("\"{}\" is not an address such as 127.0.0.1", address)));
  const tcp::endpoint where(number, port);
  auto& acceptor = listening->acceptor;
  acceptor.open(where.protocol(), error);
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
  for (auto& watched : listening_->watched) watched->end();
  listening_->watched.clear();
  listening_->context.run_for(kLastAnswers);
  return {};
}

}  // namespace tandem::wire
