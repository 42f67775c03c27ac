// Copies what one process writes of its run to the run's standby, on a thread of its own.
//
// The process says what it has written, gets a mark, and acknowledges to others once the mark is covered. Several
// threads of it may say and wait. Source (source.h) decides; here are the socket and the files.
//
// Thread safety: all but the constructor and the destructor from any thread.
#pragma once

#include <condition_variable>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <thread>
#include <vector>

#include "base/json.h"
#include "standby/source.h"
#include "wire/secret.h"

namespace tandem::standby {

struct ReplicatorSettings {
  fs::path run_dir;
  std::string run;  // its name, for people
  uint64_t run_id = 0;
  uint64_t epoch = 1;              // of the run
  std::string stream;              // of this process: "coordinator-0"
  uint64_t start = 1;              // which start of the process this is, as counted
  std::vector<std::string> paths;  // of the run directory, that are this process's to copy
  std::string address;             // of the standby
  wire::Secret secret;
  bool goes_on = false;     // without a standby that is lost
  bool keeps_news = false;  // for news(); else they are logged
};

class Replicator {
 public:
  explicit Replicator(ReplicatorSettings settings);
  ~Replicator();  // what is not held is not waited for

  // Paths are below the run directory. Marks as in Source.
  uint64_t extend(const std::string& path, uint64_t bytes);  // a log, that has so many bytes now
  // A file; its bytes do not change any more. `source`: where it lies, if not at its path.
  Result<uint64_t> put(const std::string& path, const fs::path& source = {});
  // A folder with all that is below it, the file called `last` after all others. Links that lead elsewhere are copied
  // as what they lead to.
  Result<uint64_t> put_all(const std::string& path, const std::string& last = "");
  uint64_t link(const std::string& path, const std::string& target);
  uint64_t remove(const std::string& path);

  // Whether the mark is on the standby's disk, or the run goes on without it.
  bool covers(uint64_t mark) const;
  // Waits for that. kUnfit where the run was taken over, kCancelled once cancel() was called.
  Status wait(uint64_t mark) const;
  void cancel();
  // Readable when what is covered has changed; clear() makes it wait for the next change.
  int wake_fd() const { return wake_.get(); }
  void clear() const;

  // kUnfit where the run was taken over.
  Status check() const;
  bool is_waited_for() const;  // something is wanted, and the standby does not answer
  // Waits for its first word, for so long at most. kUnfit where the run was taken over.
  Status meet(Duration patience) const;
  // News since the last call, for people.
  std::vector<std::string> news();

  // For status.json: {host, state, since, folder, behind}.
  Json report(double unix_now) const;

 private:
  void work();
  void note(Source::Turn& turn, std::vector<Request>& requests);
  void send(const std::vector<Request>& requests);
  void poke(int fd) const;
  std::optional<std::string> read_part(const std::string& path, uint64_t offset, uint64_t bytes) const;
  fs::path source_of(const std::string& path) const;

  const ReplicatorSettings settings_;
  const FileDescriptor wake_, work_wake_;
  mutable std::mutex mutex_;
  mutable std::condition_variable changed_;
  Source source_;
  std::map<std::string, fs::path> sources_;  // of files that lie elsewhere
  bool is_ending_ = false, is_cancelled_ = false;
  Time state_since_{};
  std::vector<std::string> news_;
  std::optional<wire::Socket> socket_;  // the thread's
  std::thread thread_;
};

}  // namespace tandem::standby
