// Where a run that is on hears of more hosts, and of those that it is to give back: from `tandem host --join` and
// `tandem hosts`. Over tcp, with the key of its hosts.
//
// Thread safety: none.
#pragma once

#include <functional>
#include <string>

#include "hosts/protocol.h"

namespace tandem::hosts {

class RunListener {
 public:
  // At a free port of `ip`. `context` outlives it.
  static Result<RunListener> open(zmq::context_t& context, const std::string& ip, const wire::Secret& secret);

  const std::string& address() const { return socket_.address(); }
  // Answers what has been asked since the last call; `carry_out` says what came of a request.
  void serve(const std::function<Status(const Join&)>& join, const std::function<Status(const Leave&)>& leave);

 private:
  explicit RunListener(wire::Socket socket) : socket_(std::move(socket)) {}
  wire::Socket socket_;
};

// Asks the listener at `address`; the status is what the run says. kUnavailable where nobody answers within `seconds`:
// nobody is there, or another key is.
Status ask_run(const std::string& address, const wire::Secret& secret, const Request& request, double seconds);

}  // namespace tandem::hosts
