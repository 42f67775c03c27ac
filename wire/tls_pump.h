// TLS in front of a server: bytes of a client are decrypted and handed on through a pair of sockets, and back. What
// reads requests sees a plain connection, which ends where the client's does.
//
// Thread safety: none; all on the thread that runs the context.
#pragma once

#include <boost/asio/generic/stream_protocol.hpp>
#include <boost/asio/io_context.hpp>
#include <boost/asio/ip/tcp.hpp>
#include <boost/asio/ssl/context.hpp>
#include <functional>
#include <memory>

#include "base/clock.h"

namespace tandem::wire {

struct TlsContext {
  boost::asio::ssl::context ssl{boost::asio::ssl::context::tls_server};
};

using PlainSocket = boost::asio::generic::stream_protocol::socket;

// Shakes hands within `limit`, which holds for each piece that goes out, too; then calls `entered` with the plain side;
// lets go of it uncalled where they do not come together. The pump lives as long as one of its ends is open.
void begin_tls(boost::asio::io_context& context, boost::asio::ip::tcp::socket socket, std::shared_ptr<TlsContext> tls,
               Duration limit, std::function<void(PlainSocket)> entered);

}  // namespace tandem::wire
