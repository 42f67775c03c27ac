// DIR/standby.json: whose copy a directory is, which epoch the run has by it, and whether it was taken over.
//
// The epoch counts who may go on with the run: 1 at first, one more with each take-over. The record and the files of
// the copy change under DIR/standby.lock alone, so from the moment of a take-over no late byte of the old side comes
// in.
//
// Thread safety: none needed; several processes may use one directory.
#pragma once

#include <cstdint>
#include <set>
#include <string>

#include "base/file.h"

namespace tandem::standby {

struct Record {
  uint64_t run = 0;
  std::string name;  // of the run, for people
  uint64_t epoch = 1;
  bool is_taken = false;         // a run goes on here; nothing is copied any more
  std::string holder;            // where, for people
  std::string host;              // where the host listens that keeps the copy
  std::string key;               // file with that host's key
  std::set<std::string> behind;  // streams that went on without the copy and have not caught up
};

// Held while it lives.
class RecordLock {
 public:
  static Result<RecordLock> take(const fs::path& folder);

 private:
  explicit RecordLock(FileDescriptor file) : file_(std::move(file)) {}
  FileDescriptor file_;
};

// kNotFound where the directory is no copy, kCorrupt where the record cannot be read.
Result<Record> read_record_of(const fs::path& folder);
Status write_record_of(const fs::path& folder, const Record& record);

}  // namespace tandem::standby
