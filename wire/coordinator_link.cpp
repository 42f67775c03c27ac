#include "wire/coordinator_link.h"

#include <time.h>

namespace tandem::wire {

using namespace std::chrono_literals;

namespace {

// The seconds of all threads of this process.
double cpu_seconds() {
  timespec used{};
  ::clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &used);
  return static_cast<double>(used.tv_sec) + static_cast<double>(used.tv_nsec) * 1e-9;
}

}  // namespace

void CoordinatorLink::say_hello() {
  Outgoing message;
  introduce_(message.body().initHello());
  (void)send(message);  // repeated until it is answered
  next_hello_ = clock_.now() + 200ms;
}

void CoordinatorLink::tick(const std::string& doing, const std::function<Json()>& metrics) {
  const Time now = clock_.now();
  if (known_epoch_ == 0 && now >= next_hello_) say_hello();
  if (known_epoch_ != 0 && now >= next_beat_) {
    next_beat_ = now + 1s;
    Outgoing message;
    auto beat = message.body().initHeartbeat();
    beat.setDoing(doing);
    Json figures = metrics();
    figures["cpu_seconds"] = cpu_seconds();
    beat.setMetrics(dump_json(figures));
    (void)send(message);
  }
}

std::optional<Incoming> CoordinatorLink::receive() {
  while (auto message = socket_.receive()) {
    if (!message->body().isWelcome()) return message;
    // Without an id it asks for our hello: the coordinator has started anew, or has given us up for lost.
    if (message->id() == 0) say_hello();
    if (message->id() == 1) known_epoch_ = message->epoch();
  }
  return std::nullopt;
}

}  // namespace tandem::wire
