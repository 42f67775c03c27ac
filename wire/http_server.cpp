#include "wire/http_server.h"

#include <fmt/format.h>
#include <sys/socket.h>

#include <algorithm>
#include <boost/asio/executor_work_guard.hpp>
#include <boost/asio/io_context.hpp>
#include <boost/asio/ip/tcp.hpp>
#include <boost/asio/posix/stream_descriptor.hpp>
#include <boost/asio/write.hpp>
#include <boost/beast/core.hpp>
#include <boost/beast/http.hpp>
#include <cctype>
#include <cerrno>
#include <optional>
#include <utility>

#include "wire/tls.h"
#include "wire/tls_pump.h"

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
  const size_t mark = std::min(target.find('?'), target.size());
  request.path = target.substr(0, mark);
  request.query = target.substr(std::min(mark + 1, target.size()));
  for (const auto& field : message) {
    std::string name(field.name_string());
    std::transform(name.begin(), name.end(), name.begin(), [](unsigned char c) { return std::tolower(c); });
    auto& value = request.headers[name];
    value += (value.empty() ? "" : ", ") + std::string(field.value());
  }
  return request;
}

}  // namespace

// A connection: one request after the other, each answered before the next is read.
class HttpVisit : public std::enable_shared_from_this<HttpVisit> {
 public:
  // `peer`: the address of the client.
  HttpVisit(PlainSocket socket, std::string peer, const HttpLimits& limits, const HttpHandler& handler,
            uint64_t& numbers, uint64_t place, std::function<void(HttpVisit*)> ended)
      : stream_(std::move(socket)),
        limits_(limits),
        handler_(handler),
        numbers_(numbers),
        ended_(std::move(ended)),
        peer_(std::move(peer)),
        place_(place) {}
  ~HttpVisit() { ended_(this); }

  void read_request() {
    parser_.emplace();
    parser_->header_limit(static_cast<uint32_t>(limits_.header_bytes));
    parser_->body_limit(limits_.body_bytes);
    answered_ = false;
    stream_.expires_after(limits_.transfer);
    http::async_read_header(stream_, buffer_, *parser_, [self = shared_from_this()](beast::error_code error, size_t) {
      error ? self->send_error(error) : self->admit();
    });
  }

  // Whether nothing has come of it so far, and it may still come.
  bool is_silent() const { return !is_ended_ && parser_ && !parser_->got_some() && buffer_.size() == 0 && !has_asked_; }
  uint64_t place() const { return place_; }  // in the order of connections

  void end_silent() {
    is_ended_ = true;
    beast::error_code ignored;
    stream_.socket().shutdown(tcp::socket::shutdown_both, ignored);
  }

  // Closes the connection where it waits for a next request.
  void end_if_idle() {
    if (!idle_) return;
    beast::error_code ignored;
    stream_.socket().shutdown(tcp::socket::shutdown_both, ignored);
  }

 private:
  // The next request, which may be long in coming.
  void await_request() {
    if (buffer_.size() > 0) return read_request();
    idle_ = true;
    stream_.expires_after(limits_.keep_alive);
    stream_.async_read_some(buffer_.prepare(4096), [self = shared_from_this()](beast::error_code error, size_t bytes) {
      self->idle_ = false;
      if (error) return;
      self->buffer_.commit(bytes);
      self->read_request();
    });
  }

  void admit() {
    has_asked_ = true;
    request_ = request_of(parser_->get());
    request_.number = ++numbers_;
    request_.peer = peer_;
    head_only_ = request_.method == "HEAD";
    old_client_ = parser_->get().version() < 11;
    keep_ = limits_.keep_alive > Duration(0) && parser_->keep_alive();
    if (handler_.refuse) {
      if (auto refusal = handler_.refuse(request_)) {
        // The body that was not read would be taken for the next request.
        keep_ = keep_ && parser_->is_done();
        return send(std::move(*refusal));
      }
    }
    if (beast::iequals(parser_->get()[http::field::expect], "100-continue")) {
      http::response<http::empty_body> go_on(http::status::continue_, 11);
      beast::error_code ignored;
      http::write(stream_, go_on, ignored);  // a line, which the socket's buffer takes
    }
    http::async_read(stream_, buffer_, *parser_, [self = shared_from_this()](beast::error_code error, size_t) {
      error ? self->send_error(error) : self->answer();
    });
  }

  void answer() {
    stream_.expires_never();  // how long an answer takes is for the handler to bound
    request_.body = std::move(parser_->get().body());
    number_ = request_.number;
    handler_.answer(std::move(request_), [self = shared_from_this(), number = number_](HttpResponse response) {
      if (number == self->number_ && !std::exchange(self->answered_, true)) self->send(std::move(response));
    });
    if (!answered_ || streams_) watch_client();
  }

  // Says when the client closes its side before the answer has ended. A client that sends the next request early cannot
  // be watched any more.
  void watch_client() {
    if (!handler_.gone) return;
    // Not kept alive by the wait: one that is let go unanswered is closed.
    stream_.socket().async_wait(tcp::socket::wait_read,
                                [weak = weak_from_this(), number = number_](beast::error_code error) {
                                  const auto self = weak.lock();
                                  if (error || !self || number != self->number_) return;
                                  self->look_at_client();
                                });
  }
  void look_at_client() {
    if (answered_ && !streams_) return;
    char byte;
    const auto got = ::recv(stream_.socket().native_handle(), &byte, 1, MSG_PEEK | MSG_DONTWAIT);
    if (got > 0 || (got < 0 && (errno == EAGAIN || errno == EINTR))) return;
    keep_ = false;
    tell_gone();
  }
  void tell_gone() {
    if (number_ == 0 || number_told_ == number_ || !handler_.gone) return;
    number_told_ = number_;
    handler_.gone(number_);
  }

  HttpResponse malformed(int status, std::string message) const {
    if (handler_.malformed) return handler_.malformed(status, std::move(message));
    return HttpResponse::plain(status, message + "\n");
  }

  // Of one that ended in the middle, or took too long, nothing is said.
  void send_error(beast::error_code error) {
    keep_ = false;
    if (error == http::error::body_limit) {
      return send(malformed(413, fmt::format("the body is larger than {} bytes", limits_.body_bytes)));
    }
    if (error == http::error::header_limit) return send(malformed(431, "the header is too large"));
    if (error.category() == beast::error_code(http::error::bad_method).category() &&
        error != http::error::end_of_stream && error != http::error::partial_message) {
      send(malformed(400, "this is not HTTP"));
    }
  }

  void send(HttpResponse response) {
    response_ = {};
    response_.version(11);
    response_.result(static_cast<unsigned>(response.status));
    for (const auto& [name, value] : response.headers) response_.set(name, value);
    if (response.stream) return send_stream(std::move(response.stream));
    response_.keep_alive(keep_);
    response_.body() = std::move(response.body);
    response_.prepare_payload();
    if (head_only_) response_.body().clear();
    stream_.expires_after(limits_.transfer);
    http::async_write(stream_, response_, [self = shared_from_this()](beast::error_code error, size_t) {
      if (!error) self->after_answer();
    });
  }

  void after_answer() {
    number_ = 0;
    if (keep_) return await_request();
    beast::error_code ignored;
    stream_.socket().shutdown(tcp::socket::shutdown_send, ignored);
    stream_.expires_after(limits_.transfer);
    await_close();
  }

  // In chunks; for a client that knows none, the end of the connection is the end of the body.
  void send_stream(std::shared_ptr<HttpStream> body) {
    keep_ = keep_ && !old_client_;
    response_.keep_alive(keep_);
    if (!old_client_) response_.chunked(true);
    body_stream_ = body;
    streams_ = true;
    body->changed_ = [self = shared_from_this()] {
      const auto stream = self->body_stream_.lock();
      // From its end on, what is left of it is ours to send.
      if (stream && stream->state_ != HttpStream::State::kOpen) self->ending_stream_ = stream;
      self->send_pieces();
    };
    if (body->state_ != HttpStream::State::kOpen) ending_stream_ = body;
    auto head = std::make_shared<http::response<http::empty_body>>(response_.base());
    auto serializer = std::make_shared<http::response_serializer<http::empty_body>>(*head);
    sending_ = true;
    stream_.expires_after(limits_.transfer);
    http::async_write_header(stream_, *serializer,
                             [self = shared_from_this(), head, serializer](beast::error_code error, size_t) {
                               self->sending_ = false;
                               if (error) return self->end_stream(false);
                               self->send_pieces();
                             });
  }

  void send_pieces() {
    const auto stream = body_stream_.lock();
    if (sending_ || !stream) return;
    auto& body = *stream;
    if (body.state_ == HttpStream::State::kAbandoned) {
      beast::error_code ignored;
      stream_.socket().shutdown(tcp::socket::shutdown_both, ignored);
      return end_stream(false);
    }
    const bool last = body.state_ == HttpStream::State::kEnded;
    if (body.pieces_.empty() && !last) return stream_.expires_never();
    out_.clear();
    if (old_client_) {
      out_.swap(body.pieces_);
    } else if (!body.pieces_.empty()) {
      out_ = fmt::format("{:x}\r\n{}\r\n", body.pieces_.size(), body.pieces_);
    }
    body.pieces_.clear();
    if (last && !old_client_) out_ += "0\r\n\r\n";
    if (head_only_) out_.clear();
    sending_ = true;
    stream_.expires_after(limits_.transfer);
    asio::async_write(stream_, asio::buffer(out_), [self = shared_from_this(), last](beast::error_code error, size_t) {
      self->sending_ = false;
      if (error) return self->end_stream(false);
      last ? self->end_stream(true) : self->send_pieces();
    });
  }

  void end_stream(bool whole) {
    if (!whole) tell_gone();
    streams_ = false;
    if (const auto stream = body_stream_.lock()) {
      stream->state_ = HttpStream::State::kAbandoned;
      stream->pieces_.clear();
      const auto last = std::exchange(stream->changed_, nullptr);  // may hold this alive
      ending_stream_.reset();
      if (whole) after_answer();
    }
  }

  // Closed while the client still sends, the connection would be reset and the answer perhaps never read.
  void await_close() {
    buffer_.clear();
    stream_.async_read_some(buffer_.prepare(4096), [self = shared_from_this()](beast::error_code error, size_t) {
      if (!error) self->await_close();
    });
  }

  beast::basic_stream<asio::generic::stream_protocol> stream_;
  const HttpLimits& limits_;
  const HttpHandler& handler_;
  uint64_t& numbers_;
  const std::function<void(HttpVisit*)> ended_;
  const std::string peer_;
  const uint64_t place_;
  beast::flat_buffer buffer_;
  std::optional<http::request_parser<http::string_body>> parser_;
  HttpRequest request_;
  http::response<http::string_body> response_;
  std::weak_ptr<HttpStream> body_stream_;      // that is being sent
  std::shared_ptr<HttpStream> ending_stream_;  // the same once it has ended
  std::string out_;
  uint64_t number_ = 0,
           number_told_ = 0;  // of the request that is answered; of the last whose client was said to be gone
  bool head_only_ = false, answered_ = false, keep_ = false, old_client_ = false, sending_ = false, streams_ = false,
       idle_ = false, has_asked_ = false, is_ended_ = false;
};

namespace {

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
  HttpLimits limits;
  std::map<HttpVisit*, std::weak_ptr<HttpVisit>> visits;
  uint64_t numbers = 0, places = 0;  // of requests, of connections
  asio::io_context context{1};
  tcp::acceptor acceptor{context};
  std::vector<std::shared_ptr<Watched>> watched;
  bool accepting = false;
  std::optional<tcp::socket> waiting;  // came when the silent one, in whose place it was let in, had begun to speak
  std::shared_ptr<Tls> tls;            // null: plain
  size_t shaking = 0;                  // connections that are shaking hands

  void visit(PlainSocket socket, const std::string& peer, const HttpHandler& handler) {
    const auto visit = std::make_shared<HttpVisit>(std::move(socket), peer, limits, handler, numbers, ++places,
                                                   [this](HttpVisit* self) { visits.erase(self); });
    visits.emplace(visit.get(), visit);
    visit->read_request();
  }
  void enter(tcp::socket socket, const HttpHandler& handler) {
    beast::error_code ignored;
    const auto end = socket.remote_endpoint(ignored);
    const std::string peer = ignored ? "" : end.address().to_string();
    socket.set_option(tcp::no_delay(true), ignored);
    if (!tls) return visit(PlainSocket(std::move(socket)), peer, handler);
    ++shaking;
    // Counted for as long as the pump holds what it calls.
    const std::shared_ptr<void> counted(nullptr, [this](void*) { --shaking; });
    begin_tls(context, std::move(socket), tls->context(), limits.transfer,
              [this, peer, &handler, counted](PlainSocket inside) { visit(std::move(inside), peer, handler); });
  }
  bool is_full() const { return visits.size() + shaking >= limits.connections; }
  // The oldest connection without a byte of a request; null where there is none.
  std::shared_ptr<HttpVisit> silent_visit() const {
    std::shared_ptr<HttpVisit> oldest;
    for (const auto& [pointer, weak] : visits) {
      const auto visit = weak.lock();
      if (visit && visit->is_silent() && (!oldest || visit->place() < oldest->place())) oldest = visit;
    }
    return oldest;
  }
  // What says nothing makes room for who may.
  bool make_room() const {
    if (!is_full()) return true;
    const auto silent = silent_visit();
    if (silent) silent->end_silent();
    return silent != nullptr;
  }
  void accept_next(const HttpHandler& handler) {
    if (waiting && make_room()) enter(*std::exchange(waiting, std::nullopt), handler);
    if (waiting || accepting || !acceptor.is_open() || (is_full() && !silent_visit())) return;
    accepting = true;
    acceptor.async_accept([this, &handler](beast::error_code error, tcp::socket socket) {
      accepting = false;
      if (error == asio::error::operation_aborted) return;
      if (error) return;  // tried again at the next turn: there may be no descriptors
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
  auto listening = std::make_unique<Listening>();
  listening->tls = std::move(tls);
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
  for (auto& [pointer, visit] : listening_->visits) {
    if (const auto self = visit.lock()) self->end_if_idle();
  }
  for (auto& watched : listening_->watched) watched->end();
  listening_->watched.clear();
  listening_->context.run_for(kLastAnswers);
  return {};
}

}  // namespace tandem::wire
