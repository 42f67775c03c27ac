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

// `more_comes` says whether the client has sent something that has not come to the plain side yet.
using TlsEntered = std::function<void(PlainSocket socket, std::function<bool()> more_comes)>;

// Shakes hands once the client has sent a byte, at which it calls `spoken`, and within `limit`, which holds for each
// piece that goes out, too; then calls `entered` with the plain side; lets go of both uncalled where they do not come
// together. The pump lives as long as one of its ends is open. What is returned closes the connection of a client that
// has sent nothing; false where it has.
std::function<bool()> begin_tls(boost::asio::io_context& context, boost::asio::ip::tcp::socket socket,
                                std::shared_ptr<TlsContext> tls, Duration limit, std::function<void()> spoken,
                                TlsEntered entered);

}  // namespace tandem::wire
