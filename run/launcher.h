// Starts processes of a run and reports their ends. It is the supervisor's only interface to processes, so another
// launcher can start them on other machines.
//
// Thread safety: none.
#pragma once

#include <sys/types.h>

#include <chrono>
#include <functional>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "base/file.h"
#include "base/json.h"
#include "wire/peer.h"

namespace tandem::run {

struct Job {
  std::vector<std::string> arguments;  // of the tandem binary: "role", "rollout", ..
  fs::path log;                        // where what it says is appended
  wire::Peer peer = {};                // which role it is
};

struct Ending {
  int64_t process = 0;
  int code = 0;    // its exit code, where no signal ended it
  int signal = 0;  // that ended it, or 0
  // Where neither is known: "was lost with 10.0.0.5:7070".
  std::string how = {};
};

// Where a process is.
struct Where {
  std::string host;
  int64_t pid = 0;
};

enum class EndKind : uint8_t { kAsk, kNow };  // it may finish what it is doing; it may not

class Launcher {
 public:
  virtual ~Launcher() = default;

  // Returns the new process as a number that has a meaning for this launcher only.
  virtual Result<int64_t> start(const Job& job) = 0;
  // The processes that have ended since the last call. Does not wait.
  virtual std::vector<Ending> poll() = 0;
  // One that has ended meanwhile is left alone.
  virtual void end(int64_t process, EndKind kind) = 0;
  // Waits until a process is gone that was told to end now; no Ending comes of it.
  virtual void await(int64_t process) = 0;

  // Why no machine can take this role now; empty where one can.
  virtual std::string no_room_for(const wire::Peer&) const { return ""; }
  virtual Where where(int64_t process) const { return {.host = "local", .pid = process}; }
  // News of machines since the last call, for people.
  virtual std::vector<std::string> news() { return {}; }
  // Every machine that is lent to the run, as status.json shows it.
  virtual Json hosts() const { return Json::array(); }
  // The address where more machines can be added; empty where only this one is used.
  virtual std::string join_address() const { return ""; }
  // Roles that new machines add to the run.
  virtual std::vector<wire::Peer> more_roles() { return {}; }
};

// Children of this process, on this machine; their numbers are those of the kernel. They end with it, also where it is
// killed, and what stops it at the terminal does not stop them.
class LocalLauncher final : public Launcher {
 public:
  // `memory_kills` counts the processes that the kernel has killed for lack of memory (base/host_memory.h).
  LocalLauncher();
  explicit LocalLauncher(std::function<uint64_t()> memory_kills);
  Result<int64_t> start(const Job& job) override;
  std::vector<Ending> poll() override;
  void end(int64_t process, EndKind kind) override;
  void await(int64_t process) override;

 private:
  std::set<pid_t> children_;  // that have not been waited for
  std::set<pid_t> told_;      // of them, to end now
  void look_at_kills();
  const std::function<uint64_t()> memory_kills_;
  uint64_t kills_ = 0;  // at the last look
  std::optional<std::chrono::steady_clock::time_point> looked_, rose_;
};

}  // namespace tandem::run
