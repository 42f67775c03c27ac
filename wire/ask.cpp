#include "wire/ask.h"

#include <fmt/format.h>

#include <algorithm>

namespace tandem::wire {

using namespace std::chrono_literals;

Result<Incoming> ask(Socket& socket, uint64_t id, const std::function<void(Body::Builder)>& write, double seconds,
                     const std::function<bool()>& interrupted) {
  const SystemClock clock;
  const Time deadline = clock.now() + from_seconds(seconds);
  bool sent = false;
  for (;;) {
    if (!sent) {
      Outgoing message(id);
      write(message.body());
      sent = socket.send("", message).ok();  // fails until there is a connection
    }
    while (auto message = socket.receive()) {
      if (message->id() != id) continue;  // of a question that was given up
      if (message->body().isFailed()) return fail(read_failure(message->body().getFailed()));
      return std::move(*message);
    }
    if (interrupted && interrupted()) return fail(Status::cancelled("interrupted"));
    const Duration left = deadline - clock.now();
    if (left <= Duration::zero()) break;
    Socket* const sockets[] = {&socket};
    wait(sockets, std::min<Duration>(left, sent ? 100ms : 20ms));
  }
  if (!sent) return fail(Status::unavailable(fmt::format("no environment server answers at {}", socket.address())));
  return fail(Status::deadline(
      fmt::format("the environment server at {} did not answer within {:g} s", socket.address(), seconds)));
}

}  // namespace tandem::wire
