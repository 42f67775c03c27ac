// One request over a connected socket, and its reply.
#pragma once

#include <functional>

#include "wire/socket.h"

namespace tandem::wire {

// Sends the question as soon as somebody is connected, and waits for the message with its id; others are thrown away.
// kUnavailable where nobody is there within `seconds`, kDeadline where somebody is who does not answer by then,
// kCancelled when `interrupted` says so; a Failed is the error that it holds.
Result<Incoming> ask(Socket& socket, uint64_t id, const std::function<void(Body::Builder)>& write, double seconds,
                     const std::function<bool()>& interrupted = {});

}  // namespace tandem::wire
