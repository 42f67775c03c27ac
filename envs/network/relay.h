// Relays bytes between two sockets in both directions, within limits.
#pragma once

#include <atomic>
#include <cstdint>
#include <optional>
#include <string>

#include "base/clock.h"

namespace tandem::envs {

struct RelayLimits {
  Duration idle{};
  Time deadline{};
  std::optional<uint64_t> out_bytes;  // that go to the host, then no more are taken; nothing: any number
};

struct Relayed {
  uint64_t sent = 0, received = 0;  // to and from the host
  std::string cut;                  // why it ended before both sides were done; empty where they were
};

// Until both sides have ended, one of them fails, `stop` can be read, or a limit is reached. `budget` is what is left
// of the bytes that may pass here and elsewhere; it is counted down. `early` is sent to the host first. Both sockets do
// not block; they stay the caller's.
Relayed relay(int client, int host, std::string early, const RelayLimits& limits, std::atomic<int64_t>& budget,
              int stop);

}  // namespace tandem::envs
