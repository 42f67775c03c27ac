// The processes of a server that has one for each model: who starts and watches them, as the gateway sees it.
//
// The gateway's upstreams are these processes, in the same order. Implementations are in cli/serve, over the supervisor
// of run/, which stands above this folder.
//
// Thread safety: none; all calls on the gateway's loop.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "base/clock.h"
#include "base/file.h"
#include "gateway/router.h"

namespace tandem::gateway {

struct ProcessAdapter {
  std::string name;
  fs::path directory;
  int64_t created = 0;  // Unix seconds
};

struct ProcessView {
  std::vector<std::string> names;  // of its model
  std::string url;                 // of this life; empty: none that answers
  int64_t pid = -1;                // -1: none
  std::string state;               // starting, serving, stalled, restarting, failed
  double since = 0;                // Unix seconds of its start
  int restarts = 0;
  uint64_t memory_bytes = 0, memory_limit = 0;  // of its own, without pages of files; limit 0: none
  std::string last_cause;                       // of its last end; empty: it has not ended
  int64_t max_model_len = 0;                    // tokens; 0: not known yet
  std::vector<ProcessAdapter> adapters;         // loaded now, and again in its next life
};

class Processes {
 public:
  virtual ~Processes() = default;

  // Several times a second: looks after them. What the router is to be told since the last call.
  virtual std::vector<ProcessChange> tick() = 0;
  virtual std::vector<ProcessView> views() const = 0;
  // A model could not be started, and none has served yet.
  virtual Status trouble() const = 0;

  // Its next lives load it too; `adapter` replaces one of its name.
  virtual void add_adapter(size_t process, ProcessAdapter adapter) = 0;
  virtual void remove_adapter(size_t process, const std::string& name) = 0;
  // One that has failed is tried again; false: it has not failed.
  virtual bool revive(size_t process) = 0;
};

}  // namespace tandem::gateway
