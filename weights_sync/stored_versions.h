// Names of chunks in a store, and the trainer's side of it: what is offered is written there, what is offered no more
// is removed.
//
// Written are the deltas of an offer, or, where there are none as they are switched off, its newest version whole.
// A name has the digest of the chunks, so that a trainer that came back from a checkpoint never mixes its versions with
// those of before. All names written are in a file of the run first, so that the next start removes what a killed one
// left.
//
// Thread safety: belongs to one thread; it writes on a thread of its own, and a slow store holds nobody.
#pragma once

#include <atomic>
#include <condition_variable>
#include <map>
#include <memory>
#include <mutex>
#include <string>
#include <thread>

#include "base/file.h"
#include "base/json.h"
#include "weights_sync/history.h"
#include "weights_sync/object_store.h"

namespace tandem::weights_sync {

// Of a chunk; `run` is the run's id.
std::string name_of_chunk(uint64_t run, const Manifest& manifest, uint32_t index);

class StoredVersions {
 public:
  struct Settings {
    uint64_t run = 0;
    fs::path record;     // the file of names
    bool deltas = true;  // whether offers may have some
  };
  // Null where `place` names none, and no earlier start did; errors of open_store().
  static Result<std::unique_ptr<StoredVersions>> open(const StoreSettings& place, Settings settings);
  StoredVersions(std::unique_ptr<ObjectStore> store, StoreSettings place, Settings settings);
  // Stops writing at once, then removes what was written, for 5 s at most: else the next start does.
  ~StoredVersions();
  StoredVersions(const StoredVersions&) = delete;

  // Writes what is new of it; one that has not begun is replaced by this.
  void offer(std::shared_ptr<const Offer> offer);

  struct Counts {
    uint64_t objects = 0, bytes = 0, failures = 0;  // written so far, and puts that failed
    double seconds = 0;                             // spent on it
    std::string failure;                            // the last one; empty where the last put went well
  };
  Counts counts() const;
  Json metrics() const;  // the same, for metrics.jsonl

 private:
  using Names = std::map<std::string, uint32_t>;  // objects, and the chunks of each
  void work(const std::stop_token& stop);
  // Removes what an earlier start wrote, wherever that was.
  void sweep(const std::stop_token& stop);
  void write(const Offer& offer, const std::stop_token& stop);
  Status put(const Object& object, const std::string& name, const std::stop_token& stop);
  void remove(const std::string& name, const std::stop_token& stop);
  Status record() const;
  static Names names_in(const Json& record, uint64_t run);

  const std::unique_ptr<ObjectStore> store_;  // null: it only removes
  const StoreSettings place_;
  const Settings settings_;
  bool is_failing_ = false;  // the last offer could not be written whole
  Names written_;            // the thread's, and the destructor's after it
  mutable std::mutex mutex_;
  std::condition_variable_any changed_;
  std::shared_ptr<const Offer> offered_;
  Counts counts_;
  std::jthread thread_;
};

}  // namespace tandem::weights_sync
