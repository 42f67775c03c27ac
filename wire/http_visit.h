// A connection to the HTTP server: one request after the other, each answered before the next is read.
//
// Private to wire/. Ownership: a visit holds itself until the connection has ended; limits, handler, numbers and places
// must outlive it. Thread safety: none; all on the thread that runs the context of the socket.
#pragma once

#include <cstdint>
#include <string>

#include "wire/http_places.h"
#include "wire/tls_pump.h"

namespace tandem::wire {

struct HttpHandler;
struct HttpLimits;

// `peer`: the address of the client. `numbers`: of requests; the last that was given out.
void begin_visit(PlainSocket socket, std::string peer, const HttpLimits& limits, const HttpHandler& handler,
                 uint64_t& numbers, HttpPlaces& places);

}  // namespace tandem::wire
