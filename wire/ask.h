// One request over a connected socket, and its reply.
#pragma once

#include <functional>

#include "wire/socket.h"

namespace tandem::wire {

// Sends the request once a peer is connected, and waits for the reply with its id; other messages are dropped.
// kUnavailable where no peer connects within `seconds`, kDeadline where the peer does not answer by then, kCancelled
// where `interrupted` returns true. A Failed reply becomes its error.
Result<Incoming> ask(Socket& socket, uint64_t id, const std::function<void(Body::Builder)>& write, double seconds,
                     const std::function<bool()>& interrupted = {});

}  // namespace tandem::wire
