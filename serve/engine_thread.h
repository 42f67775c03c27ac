// An engine on a thread of its own: turns go in, tokens come out, and the owner's loop is woken for them.
//
// Thread safety: all calls from the owner's thread. The destructor waits for the step that is under way.
#pragma once

#include <chrono>
#include <condition_variable>
#include <memory>
#include <mutex>
#include <optional>
#include <thread>
#include <vector>

#include "base/clock.h"
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
  // True: nothing is sampled until it is false again; turns keep where they are.
  void hold(bool held);
  // Another engine in place of this one, or null: its memory is given back. Turns of the old one are gone.
  void put(std::unique_ptr<rollout::Engine> engine);
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
  // Takes tokens and errors since the last call.
  News take();
  // Readable when there is something to take.
  int wake_fd() const { return wake_.get(); }

  rollout::EngineCounters counters() const;
  // How long the engine has been in one step, or the thread about turns, by now: an engine that has no end to it is
  // seen by this alone. 0: it waits.
  Duration busy() const;

 private:
  void run();

  std::unique_ptr<rollout::Engine> engine_;  // of the thread; may be null
  FileDescriptor wake_;
  mutable std::mutex mutex_;
  std::condition_variable changed_;
  std::optional<std::unique_ptr<rollout::Engine>> next_;  // that was put
  bool held_ = false;
  std::vector<Turn> turns_;
  std::vector<rollout::SequenceId> released_;
  News news_;
  rollout::EngineCounters counters_;
  bool stopping_ = false;
  std::optional<std::chrono::steady_clock::time_point> busy_since_;  // nothing: it waits
  std::thread thread_;
};

}  // namespace tandem::serve
