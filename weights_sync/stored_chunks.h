// A rollout's side of a store: reads chunks that the trainer has written there, or is about to.
//
// A store that fails is left alone for a while, and the trainer is asked: for 15 s, then twice as long each time, for
// 8 minutes at most.
//
// Thread safety: belongs to one thread; it reads on threads of its own.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "base/clock.h"
#include "base/work_queue.h"
#include "weights_sync/object_store.h"
#include "weights_sync/version.h"

namespace tandem::weights_sync {

class StoredChunks {
 public:
  struct Settings {
    uint64_t run = 0;
    bool deltas = true;   // else the trainer stores versions whole
    double seconds = 10;  // for a chunk to be there
  };
  // `clock` outlives it.
  StoredChunks(std::unique_ptr<ObjectStore> store, Settings settings, const Clock& clock);
  ~StoredChunks();
  StoredChunks(const StoredChunks&) = delete;

  // Whether chunks of this are asked for here.
  bool has(const Manifest& manifest) const;
  // False where too many are under way.
  bool ask(const Manifest& manifest, uint32_t index);

  struct Come {
    uint64_t base = 0, version = 0;
    uint32_t index = 0;
    Result<std::string> bytes;
  };
  // What has come since the last call.
  std::vector<Come> take();

  // What was read and is as it should be.
  void went_well(size_t bytes) {
    failures_ = 0;
    ++chunks_;
    bytes_ += bytes;
  }
  // A chunk was not to be had, or was not what it should be: the store is left alone.
  void gave_up();
  uint64_t given_up() const { return given_up_; }
  uint64_t bytes() const { return bytes_; }

 private:
  Result<std::string> read(const std::string& name, size_t limit) const;

  const std::shared_ptr<ObjectStore> store_;
  const Settings settings_;
  const Clock& clock_;
  std::stop_source stop_;
  std::vector<Come> come_;
  int failures_ = 0;  // in a row
  uint64_t given_up_ = 0, chunks_ = 0, bytes_ = 0;
  Time left_alone_until_{};
  WorkQueue queue_;  // goes first
};

}  // namespace tandem::weights_sync
