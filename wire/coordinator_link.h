// A role's connection to the coordinator: registers, sends a heartbeat every second, and registers again after a
// restart of the coordinator.
//
// Thread safety: none; used on the thread of the role's work loop, so that heartbeats stop when the loop hangs.
#pragma once

#include <functional>
#include <string>

#include "base/clock.h"
#include "base/json.h"
#include "wire/socket.h"

namespace tandem::wire {

class CoordinatorLink {
 public:
  // `introduce` fills in the hello; it is asked again for every new epoch of the coordinator.
  CoordinatorLink(Socket socket, const Clock& clock, std::function<void(Hello::Builder)> introduce)
      : socket_(std::move(socket)), clock_(clock), introduce_(std::move(introduce)) {}

  Socket& socket() { return socket_; }

  // To be called in every turn of the work loop: sends hello and heartbeats when they are due. To the metrics it adds
  // `cpu_seconds`, what the process has used of the processors.
  void tick(const std::string& doing, const std::function<Json()>& metrics);

  // The next message that is not about the link itself.
  std::optional<Incoming> receive();

  Status send(Outgoing& message) { return socket_.send("", message); }
  bool known() const { return known_epoch_ != 0; }

 private:
  void say_hello();
  Socket socket_;
  const Clock& clock_;
  std::function<void(Hello::Builder)> introduce_;
  uint64_t known_epoch_ = 0;  // of the coordinator that has our hello
  Time next_hello_{}, next_beat_{};
};

}  // namespace tandem::wire
