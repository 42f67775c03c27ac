// How tests wait for a state: by looking at it again, up to a deadline.
#pragma once

#include <unistd.h>

#include <chrono>

namespace tandem {

using namespace std::chrono_literals;

// Looks every 10 ms until `condition` holds; false where it did not within `limit`.
template <typename Condition>
bool within(std::chrono::milliseconds limit, Condition condition) {
  const auto deadline = std::chrono::steady_clock::now() + limit;
  while (!condition()) {
    if (std::chrono::steady_clock::now() > deadline) return false;
    ::usleep(10'000);
  }
  return true;
}

}  // namespace tandem
