// A host's copies of runs: takes requests of their processes in, carries them out on a thread of its own, and answers
// when they are on disk. What comes in while it waits for the disk shares the next wait.
//
// A copy of run R lies in FOLDER/R's number. It stays when the run is over: it is a run directory.
//
// Thread safety: one owner; files are the thread's.
#pragma once

#include <functional>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "base/work_queue.h"
#include "standby/copy.h"
#include "standby/record.h"
#include "standby/streams.h"

namespace tandem::standby {

struct KeeperSettings {
  fs::path folder;                                        // of all copies; made when the first one begins
  std::string host;                                       // where this host listens: a take-over begins with it
  std::string key;                                        // file with its key
  std::function<void(const std::string& line)> say = {};  // from the thread: what happens, for people
};

class Keeper {
 public:
  explicit Keeper(KeeperSettings settings) : settings_(std::move(settings)) {}

  // A copyRequest. What there is no room for is dropped: it comes again.
  void take(wire::Incoming message);

  struct Reply {
    std::string to;
    uint64_t id = 0, run = 0;
    Answer answer;
  };
  // Sends what has been carried out since, by `send`.
  void turn(const std::function<void(const Reply&)>& send);
  int wake_fd() const { return work_.wake_fd(); }

 private:
  struct OfRun {
    Copy copy;
    Streams streams;
    std::map<std::string, Answer> last_survey;  // by stream
  };
  struct Batch {
    std::vector<wire::Incoming> requests;
  };
  // The thread's.
  std::vector<Reply> carry_out(const Batch& batch);
  void carry_out_of(uint64_t run, const std::vector<const wire::Incoming*>& requests, std::vector<Reply>& replies);
  Status open(uint64_t run, const Request& request);
  Status apply(OfRun& kept, Record& record, const std::string& stream, const Request& request,
               const wire::Incoming& message);

  const KeeperSettings settings_;
  std::vector<wire::Incoming> waiting_;
  bool is_working_ = false;
  std::vector<Reply> done_;
  std::map<uint64_t, std::unique_ptr<OfRun>> runs_;  // the thread's
  WorkQueue work_{1, 2};                             // its thread uses what stands above
};

}  // namespace tandem::standby
