// A connection to the HTTP server: one request after the other, each answered before the next is read.
//
// Private to wire/. Ownership: a visit holds itself until the connection has ended; limits, handler, numbers and places
// must outlive it. Thread safety: none; all on the thread that runs the context of the socket.
#pragma once

#include <cstdint>
#include <functional>
#include <string>

#include "wire/http_places.h"
#include "wire/tls_pump.h"

namespace tandem::wire {

struct HttpHandler;
struct HttpLimits;

// `more_comes`: whether the client has sent something that is not in the socket yet; empty: never. `peer`: its address.
// `numbers`: of requests; the last that was given out.
void begin_visit(PlainSocket socket, std::function<bool()> more_comes, std::string peer, const HttpLimits& limits,
                 const HttpHandler& handler, uint64_t& numbers, HttpPlaces& places);

}  // namespace tandem::wire
