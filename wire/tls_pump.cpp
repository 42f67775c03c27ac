#include "wire/tls_pump.h"

#include <sys/socket.h>

#include <array>
#include <boost/asio/local/connect_pair.hpp>
#include <boost/asio/local/stream_protocol.hpp>
#include <boost/asio/ssl/stream.hpp>
#include <boost/asio/steady_timer.hpp>
#include <boost/asio/write.hpp>
#include <boost/system/error_code.hpp>
#include <string_view>
#include <utility>

namespace tandem::wire {

namespace asio = boost::asio;
namespace ssl = boost::asio::ssl;
using asio::ip::tcp;
using boost::system::error_code;

namespace {

// How long the last bytes of a connection may take.
constexpr Duration kFarewell = std::chrono::seconds(5);

// The socket of a client, beneath TLS. Nothing is read before the handler runs that hands it on, so that whatever has
// come is found in the socket or known to TLS, and never under way in between.
class ClientSocket {
 public:
  using executor_type = tcp::socket::executor_type;
  using lowest_layer_type = tcp::socket::lowest_layer_type;

  explicit ClientSocket(tcp::socket socket) : socket_(std::move(socket)) {
    error_code ignored;
    socket_.non_blocking(true, ignored);
  }
  executor_type get_executor() { return socket_.get_executor(); }
  lowest_layer_type& lowest_layer() { return socket_.lowest_layer(); }
  tcp::socket& socket() { return socket_; }

  // Whether TLS has made use of all that was read, and waits for more; and there is none.
  bool waits_in_vain() {
    char byte;
    return waits_ && ::recv(socket_.native_handle(), &byte, 1, MSG_PEEK | MSG_DONTWAIT) <= 0;
  }

  template <typename Buffers, typename Handler>
  void async_read_some(const Buffers& buffers, Handler&& handler) {
    // How TLS has its own handler called when it needs no bytes.
    if (asio::buffer_size(buffers) == 0) return socket_.async_read_some(buffers, std::forward<Handler>(handler));
    waits_ = true;
    socket_.async_wait(tcp::socket::wait_read,
                       [this, buffers, handler = std::forward<Handler>(handler)](error_code error) mutable {
                         waits_ = false;
                         const size_t bytes = error ? 0 : socket_.read_some(buffers, error);
                         if (error == asio::error::would_block) return async_read_some(buffers, std::move(handler));
                         handler(error, bytes);
                       });
  }
  template <typename Buffers, typename Handler>
  void async_write_some(const Buffers& buffers, Handler&& handler) {
    socket_.async_write_some(buffers, std::forward<Handler>(handler));
  }

 private:
  tcp::socket socket_;
  bool waits_ = false;
};

// One connection: two loops, each of which reads as much as the other end has taken.
class Pump : public std::enable_shared_from_this<Pump> {
 public:
  Pump(asio::io_context& context, tcp::socket socket, std::shared_ptr<TlsContext> tls)
      : tls_(std::move(tls)),
        client_(ClientSocket(std::move(socket)), tls_->ssl),
        inside_(context),
        timer_(context),
        context_(context) {}

  void begin(Duration limit, std::function<void()> spoken, TlsEntered entered) {
    limit_ = limit;
    close_after(limit);
    socket().async_wait(tcp::socket::wait_read, [self = shared_from_this(), spoken = std::move(spoken),
                                                 entered = std::move(entered)](error_code error) {
      if (error) return;
      spoken();
      self->shake_hands(entered);
    });
  }

  bool leave_unspoken() {
    char byte;
    if (::recv(socket().native_handle(), &byte, 1, MSG_PEEK | MSG_DONTWAIT) > 0) return false;
    timer_.cancel();
    close_client();
    return true;
  }

 private:
  tcp::socket& socket() { return client_.next_layer().socket(); }

  void shake_hands(const TlsEntered& entered) {
    client_.async_handshake(ssl::stream_base::server, [self = shared_from_this(), entered](error_code error) {
      self->timer_.cancel();
      if (!error) self->enter(entered);
    });
  }

  void enter(const TlsEntered& entered) {
    asio::local::stream_protocol::socket outer(context_), inner(context_);
    error_code error;
    asio::local::connect_pair(outer, inner, error);
    if (error) return;  // no descriptors: the client is closed as this goes
    inside_ = PlainSocket(std::move(outer));
    entered(PlainSocket(std::move(inner)), [weak = weak_from_this()] {
      const auto self = weak.lock();
      return self && self->more_comes();
    });
    read_client();
    read_inside();
  }

  // A record of which a part has come is known to OpenSSL alone; "RB": it has its header, and no byte of the rest.
  bool more_comes() {
    SSL* const ssl = client_.native_handle();
    return !client_.next_layer().waits_in_vain() || SSL_has_pending(ssl) == 1 ||
           std::string_view(SSL_rstate_string(ssl)) == "RB";
  }

  void read_client() {
    client_.async_read_some(asio::buffer(from_client_), [self = shared_from_this()](error_code error, size_t bytes) {
      if (error) return self->client_ended();
      asio::async_write(self->inside_, asio::buffer(self->from_client_, bytes), [self](error_code failed, size_t) {
        if (failed) return;  // nobody listens any more: what reads the inside ends it
        self->read_client();
      });
    });
  }
  // The client has said its last; what it waits for still goes out.
  void client_ended() {
    error_code ignored;
    inside_.shutdown(asio::socket_base::shutdown_send, ignored);
  }

  void read_inside() {
    inside_.async_read_some(asio::buffer(from_inside_), [self = shared_from_this()](error_code error, size_t bytes) {
      if (error) return self->inside_ended();
      // A client that takes nothing would hold this for as long as it likes: the inside may have ended long ago.
      self->close_after(self->limit_);
      asio::async_write(self->client_, asio::buffer(self->from_inside_, bytes), [self](error_code failed, size_t) {
        self->timer_.cancel();
        if (!failed) return self->read_inside();
        error_code ignored;
        self->inside_.close(ignored);
        self->close_client();
      });
    });
  }
  // Says goodbye; a client that does not answer to it is closed.
  void inside_ended() {
    close_after(kFarewell);
    client_.async_shutdown([self = shared_from_this()](error_code) {
      self->timer_.cancel();
      self->close_client();
      error_code ignored;
      self->inside_.close(ignored);
    });
  }
  // Unless the timer is set again or cancelled before.
  void close_after(Duration limit) {
    timer_.expires_after(limit);
    timer_.async_wait([self = shared_from_this()](error_code error) {
      if (!error) self->close_client();
    });
  }
  void close_client() {
    error_code ignored;
    socket().close(ignored);
  }

  const std::shared_ptr<TlsContext> tls_;  // of `client_`
  ssl::stream<ClientSocket> client_;
  PlainSocket inside_;
  asio::steady_timer timer_;
  Duration limit_{};  // of the handshake, and of each piece that goes out
  asio::io_context& context_;
  std::array<char, 16384> from_client_{}, from_inside_{};
};

}  // namespace

std::function<bool()> begin_tls(asio::io_context& context, tcp::socket socket, std::shared_ptr<TlsContext> tls,
                                Duration limit, std::function<void()> spoken, TlsEntered entered) {
  const auto pump = std::make_shared<Pump>(context, std::move(socket), std::move(tls));
  pump->begin(limit, std::move(spoken), std::move(entered));
  return [weak = std::weak_ptr<Pump>(pump)] {
    const auto self = weak.lock();
    return self && self->leave_unspoken();
  };
}

}  // namespace tandem::wire
