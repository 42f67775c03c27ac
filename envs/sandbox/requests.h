// The requests of a sandbox, and the replies of its first process, over one socket.
#pragma once

#include <condition_variable>
#include <map>
#include <mutex>
#include <stop_token>
#include <string>
#include <string_view>

#include "base/clock.h"
#include "base/status.h"
#include "envs/sandbox/request_kind.h"
#include "envs/sandbox/spawned.h"

namespace tandem::envs {

// Thread safety: request and end may be called from any threads; of all that wait, one reads and hands out what comes.
class Requests {
 public:
  explicit Requests(SpawnedSandbox spawned) : spawned_(std::move(spawned)) {}
  ~Requests() { kill_all(); }
  Requests(const Requests&) = delete;
  Requests& operator=(const Requests&) = delete;

  // Sends one request and waits for its reply. After `stop` the sandbox is asked to end what it does, and the reply is
  // what came of it. `descriptor`, where there is one, goes right behind the request. kDeadline, kUnavailable or
  // kCorrupt where the sandbox is lost; it is ended then, and every later request fails in the same way.
  Result<std::string> request(RequestKind kind, std::string_view fields, double seconds,
                              const std::stop_token& stop = {}, int descriptor = -1);

  // Ends the sandbox and waits for nothing; requests fail from then on, with `why` in their words.
  void end(std::string_view why);

  const SpawnedSandbox& spawned() const { return spawned_; }

 private:
  void send(uint64_t id, RequestKind kind, std::string_view fields, Time deadline);
  Status lose(Status why);
  void kill_all();

  SpawnedSandbox spawned_;
  std::mutex mutex_;
  std::condition_variable changed_;
  Status lost_;
  uint64_t next_id_ = 1;
  bool reading_ = false;
  std::map<uint64_t, std::string> replies_;
  std::mutex why_mutex_;   // held for nothing that waits
  std::string why_ended_;  // what end() was told
};

}  // namespace tandem::envs
