// An engine on a thread of its own: turns go in, tokens come out, and the owner's loop is woken for them.
//
// Thread safety: all calls from the owner's thread. The destructor waits for the step that is under way.
#pragma once

#include <condition_variable>
#include <mutex>
#include <thread>
#include <vector>

#include "base/file.h"
#include "rollout/engine/engine.h"

namespace tandem::serve {

class EngineThread {
 public:
  explicit EngineThread(rollout::Engine engine);
  ~EngineThread();

  struct Turn {
    rollout::SequenceId id = 0;
    std::vector<int32_t> prompt;
    rollout::TurnRequest request;
  };
  void start(Turn turn);
  // Ends a turn, or forgets one that has ended. What was sampled meanwhile may still come out.
  void release(rollout::SequenceId id);

  struct Refused {
    rollout::SequenceId id = 0;
    Status status;
  };
  struct News {
    std::vector<rollout::SampledToken> tokens;
    std::vector<Refused> refused;
    Status trouble;  // of the engine: it samples no more
  };
  // What has come since the last call.
  News take();
  // Readable when there is something to take.
  int wake_fd() const { return wake_.get(); }

  rollout::EngineCounters counters() const;

 private:
  void run();

  rollout::Engine engine_;
  FileDescriptor wake_;
  mutable std::mutex mutex_;
  std::condition_variable changed_;
  std::vector<Turn> turns_;
  std::vector<rollout::SequenceId> released_;
  News news_;
  rollout::EngineCounters counters_;
  bool stopping_ = false;
  std::thread thread_;
};

}  // namespace tandem::serve
