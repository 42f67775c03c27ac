#include "dashboard/view_server.h"

#include <fmt/format.h>

#include <boost/asio/io_context.hpp>
#include <boost/asio/ip/tcp.hpp>
#include <boost/beast/core.hpp>
#include <boost/beast/http.hpp>
#include <chrono>
#include <utility>

namespace tandem::dashboard {

using namespace std::chrono_literals;
namespace asio = boost::asio;
namespace beast = boost::beast;
namespace http = boost::beast::http;
using asio::ip::tcp;

namespace {

using Answer = std::function<Result<ServedPage>(const std::string& path)>;
using Response = http::response<http::string_body>;

// One visitor, one request, one answer.
class Visit : public std::enable_shared_from_this<Visit> {
 public:
  Visit(tcp::socket socket, uint16_t port, const Answer& answer)
      : stream_(std::move(socket)), port_(port), answer_(answer) {
    parser_.header_limit(8192);
    parser_.body_limit(0);
  }

  void start() {
    stream_.expires_after(5s);
    http::async_read_header(stream_, buffer_, parser_, [self = shared_from_this()](beast::error_code error, size_t) {
      if (error) return;
      self->respond();
    });
  }

 private:
  void respond() {
    const auto& request = parser_.get();
    response_ = make(request);
    response_.version(request.version());
    response_.keep_alive(false);
    response_.set(http::field::cache_control, "no-store");
    response_.set("X-Content-Type-Options", "nosniff");
    response_.set("X-Frame-Options", "DENY");
    response_.set("Referrer-Policy", "no-referrer");
    response_.set("Cross-Origin-Resource-Policy", "same-origin");
    response_.prepare_payload();
    if (request.method() == http::verb::head) response_.body().clear();
    stream_.expires_after(5s);
    http::async_write(stream_, response_, [self = shared_from_this()](beast::error_code, size_t) {
      beast::error_code ignored;
      self->stream_.socket().shutdown(tcp::socket::shutdown_both, ignored);
    });
  }

  Response make(const http::request<http::empty_body>& request) const {
    const std::string host(request[http::field::host]);
    if (host != fmt::format("127.0.0.1:{}", port_) && host != fmt::format("localhost:{}", port_)) {
      return plain(http::status::forbidden, "this page is only for 127.0.0.1\n");
    }
    if (request.method() != http::verb::get && request.method() != http::verb::head) {
      return plain(http::status::method_not_allowed, "GET or HEAD\n");
    }
    const std::string target(request.target());
    auto page = answer_(target.substr(0, target.find('?')));
    if (!page) {
      const bool missing = page.error().code() == Code::kNotFound;
      return plain(missing ? http::status::not_found : http::status::internal_server_error,
                   page.error().message() + "\n");
    }
    Response response{http::status::ok, 11};
    response.set(http::field::content_type, page->type);
    response.body() = std::move(page->body);
    return response;
  }

  static Response plain(http::status status, std::string text) {
    Response response{status, 11};
    response.set(http::field::content_type, "text/plain; charset=utf-8");
    response.body() = std::move(text);
    return response;
  }

  beast::tcp_stream stream_;
  const uint16_t port_;
  const Answer& answer_;
  beast::flat_buffer buffer_{16384};
  http::request_parser<http::empty_body> parser_;
  Response response_;
};

}  // namespace

struct ViewServer::Listening {
  asio::io_context context{1};
  tcp::acceptor acceptor{context};
  uint16_t port = 0;

  void accept_next(const Answer& answer) {
    acceptor.async_accept([this, &answer](beast::error_code error, tcp::socket socket) {
      if (error == asio::error::operation_aborted) return;
      if (!error) std::make_shared<Visit>(std::move(socket), port, answer)->start();
      accept_next(answer);
    });
  }
};

ViewServer::ViewServer(std::unique_ptr<Listening> listening) : listening_(std::move(listening)) {}
ViewServer::ViewServer(ViewServer&&) noexcept = default;
ViewServer::~ViewServer() = default;

Result<ViewServer> ViewServer::listen(uint16_t port) {
  auto listening = std::make_unique<Listening>();
  const tcp::endpoint where(asio::ip::address_v4::loopback(), port);
  beast::error_code error;
  auto& acceptor = listening->acceptor;
  acceptor.open(where.protocol(), error);
  if (!error) acceptor.set_option(asio::socket_base::reuse_address(true), error);
  if (!error) acceptor.bind(where, error);
  if (!error) acceptor.listen(asio::socket_base::max_listen_connections, error);
  if (error) {
    return fail(Status::unavailable(fmt::format("127.0.0.1:{} cannot be listened on: {}", port, error.message()))
                    .hint("give another port with --port, or none for any that is free"));
  }
  listening->port = acceptor.local_endpoint().port();
  return ViewServer(std::move(listening));
}

uint16_t ViewServer::port() const { return listening_->port; }

Status ViewServer::serve(const Answer& answer, const std::atomic<bool>& stop) {
  listening_->accept_next(answer);
  while (!stop) listening_->context.run_for(100ms);
  beast::error_code ignored;
  listening_->acceptor.close(ignored);
  // Visits end by themselves, or by their deadline; they use `answer`, which is the caller's.
  listening_->context.run_for(6s);
  return {};
}

}  // namespace tandem::dashboard
