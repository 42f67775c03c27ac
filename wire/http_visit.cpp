#include "wire/http_visit.h"

#include <fmt/format.h>
#include <sys/socket.h>

#include <algorithm>
#include <boost/asio/steady_timer.hpp>
#include <boost/asio/write.hpp>
#include <boost/beast/core.hpp>
#include <boost/beast/http.hpp>
#include <cctype>
#include <cerrno>
#include <cstring>
#include <optional>
#include <utility>

#include "wire/http_server.h"

namespace tandem::wire {

namespace asio = boost::asio;
namespace beast = boost::beast;
namespace http = boost::beast::http;
using asio::ip::tcp;

namespace {

// Takes the host off a target such as http://host/path, and returns it; of others nothing.
std::string take_authority(std::string& target) {
  size_t begin = 0;
  for (const beast::string_view scheme : {"http://", "https://"}) {
    if (beast::iequals(beast::string_view(target).substr(0, scheme.size()), scheme)) begin = scheme.size();
  }
  if (begin == 0) return "";
  const size_t end = std::min(target.find_first_of("/?", begin), target.size());
  const std::string authority = target.substr(begin, end - begin);
  target.erase(0, end);
  if (!target.starts_with('/')) target.insert(0, "/");
  return authority;
}

HttpRequest request_of(const http::request<http::string_body>& message) {
  HttpRequest request;
  request.method = std::string(message.method_string());
  std::string target(message.target());
  const std::string authority = take_authority(target);
  const size_t mark = std::min(target.find('?'), target.size());
  request.path = target.substr(0, mark);
  request.query = target.substr(std::min(mark + 1, target.size()));
  for (const auto& field : message) {
    std::string name(field.name_string());
    std::transform(name.begin(), name.end(), name.begin(), [](unsigned char c) { return std::tolower(c); });
    auto& value = request.headers[name];
    value += (value.empty() ? "" : ", ") + std::string(field.value());
  }
  // RFC 9112, 3.2.2: it goes before the field.
  if (!authority.empty()) request.headers["host"] = authority;
  return request;
}

}  // namespace

class HttpVisit : public std::enable_shared_from_this<HttpVisit> {
 public:
  HttpVisit(PlainSocket socket, std::function<bool()> more_comes, std::string peer, const HttpLimits& limits,
            const HttpHandler& handler, uint64_t& numbers, HttpPlaces& places)
      : stream_(std::move(socket)),
        patience_(stream_.get_executor()),
        limits_(limits),
        handler_(handler),
        numbers_(numbers),
        more_comes_(std::move(more_comes)),
        peer_(std::move(peer)),
        place_(places) {
    place_.leave_by([this] { return leave(); });
    beast::error_code ignored;
    stream_.socket().non_blocking(true, ignored);
  }

  void begin() { await_request(Use::kSilent, limits_.transfer); }

 private:
  using Use = HttpPlaces::Use;
  using Clock = asio::steady_timer::clock_type;

  // The next request, which may be long in coming; `use`: of the place until then.
  void await_request(Use use, Duration limit) {
    awaiting_ = use;
    awaits_ = true;
    patience_.expires_after(limit);
    patience_.async_wait([weak = weak_from_this()](beast::error_code error) {
      const auto self = weak.lock();
      if (!error && self && self->awaits_ && self->patience_.expiry() <= Clock::now()) self->stream_.close();
    });
    await_bytes();
  }
  void await_bytes() {
    skip_empty_lines();
    if (buffer_.size() > 1 || (buffer_.size() == 1 && first_byte() != '\r')) return read_request();
    place_.use(awaiting_);
    // Nothing is read before its handler runs: leave() finds in the socket what has come.
    stream_.socket().async_wait(tcp::socket::wait_read, [self = shared_from_this()](beast::error_code error) {
      if (!error) self->read_bytes();
    });
  }
  void read_bytes() {
    beast::error_code error;
    const size_t bytes = stream_.socket().read_some(buffer_.prepare(4096), error);
    if (error && error != asio::error::would_block) return;
    buffer_.commit(bytes);
    await_bytes();
  }
  char first_byte() const { return static_cast<const char*>(buffer_.data().data())[0]; }
  // RFC 9112, 2.2: some clients send one behind the body of the request before.
  void skip_empty_lines() {
    while (buffer_.size() > 1 && std::memcmp(buffer_.data().data(), "\r\n", 2) == 0) buffer_.consume(2);
  }

  void read_request() {
    awaits_ = false;
    patience_.cancel();
    place_.use(Use::kBusy);
    parser_.emplace();
    parser_->header_limit(static_cast<uint32_t>(limits_.header_bytes));
    parser_->body_limit(limits_.body_bytes);
    answered_ = false;
    stream_.expires_after(limits_.transfer);
    http::async_read_header(stream_, buffer_, *parser_, [self = shared_from_this()](beast::error_code error, size_t) {
      error ? self->send_error(error) : self->admit();
    });
  }

  // Closes the connection where another one needs its place.
  bool leave() {
    if (!lingers_ && has_come()) return false;
    stream_.close();
    return true;
  }
  // Whether there is something of a request that was not read yet.
  bool has_come() {
    char byte;
    return ::recv(stream_.socket().native_handle(), &byte, 1, MSG_PEEK | MSG_DONTWAIT) > 0 ||
           (more_comes_ && more_comes_());
  }

  void admit() {
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

  // Nothing is said of one that ended in the middle, or took too long.
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
    if (keep_) return await_request(Use::kIdle, limits_.keep_alive);
    beast::error_code ignored;
    stream_.socket().shutdown(tcp::socket::shutdown_send, ignored);
    stream_.expires_after(limits_.transfer);
    lingers_ = true;
    place_.use(Use::kLingering);
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
  asio::steady_timer patience_;  // with a client that has not begun a request
  const HttpLimits& limits_;
  const HttpHandler& handler_;
  uint64_t& numbers_;
  const std::function<bool()> more_comes_;
  const std::string peer_;
  HttpPlaces::Place place_;
  Use awaiting_ = Use::kSilent;
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
       lingers_ = false, awaits_ = false;
};

void begin_visit(PlainSocket socket, std::function<bool()> more_comes, std::string peer, const HttpLimits& limits,
                 const HttpHandler& handler, uint64_t& numbers, HttpPlaces& places) {
  std::make_shared<HttpVisit>(std::move(socket), std::move(more_comes), std::move(peer), limits, handler, numbers,
                              places)
      ->begin();
}

}  // namespace tandem::wire
