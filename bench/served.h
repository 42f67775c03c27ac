// What the benchmarks of the server share: a server in this process, and requests over loopback sockets.
//
// Thread safety: none.
#pragma once

#include <array>
#include <atomic>
#include <memory>
#include <string>
#include <string_view>
#include <thread>

#include "base/file.h"
#include "base/json.h"
#include "bench/benchmarks.h"
#include "serve/server.h"

namespace tandem::bench {

// A blocking connection without Nagle's delay.
Result<FileDescriptor> connect_to(uint16_t port);

// An HTTP request. `priority`: its class; empty: none is named.
std::string post(const std::string& path, const Json& body, std::string_view priority = {});

// Whether an answer has come whole.
bool ends_whole(std::string_view answer);

struct Admitted {
  int queue = 1024;
  std::array<Duration, serve::kPriorities.size()> longest_wait = {};
};

// A server of the settings' model, as "model", on a thread of its own.
class Served {
 public:
  static Result<std::unique_ptr<Served>> start(const Settings& settings, const Admitted& admitted);
  ~Served();
  uint16_t port() const;

 private:
  SystemClock clock_;
  std::unique_ptr<serve::Server> server_;
  std::atomic<bool> stop_{false}, read_keys_{false}, ready_{false}, ended_{false};
  Status status_;
  std::thread thread_;
};

}  // namespace tandem::bench
