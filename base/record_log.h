// An append-only log of checksummed records.
//
// The file starts with 8 bytes of magic; a record is its length (u32), the low 64 bits of its XXH3 digest (u64), and
// its bytes, little-endian. A reader stops at the first record that is cut short or damaged and says where; a writer
// that opens such a file cuts it there first when only its end is torn (a crash while appending), and refuses one
// damaged in the middle.
//
// Memory: a reader holds one record and a bounded part of the file.
// Thread safety: none; one writer a file. Readers may read while a writer appends.
#pragma once

#include <functional>
#include <string_view>
#include <vector>

#include "base/file.h"

namespace tandem {

struct LogContent {
  uint64_t records = 0;
  std::vector<uint64_t> damaged;  // offsets of those that were skipped
  uint64_t good_bytes = 0;        // up to the end of the last good record
  uint64_t file_bytes = 0;
};

// Handling of a damaged record between good ones: an error, or skipped.
enum class Damage : uint8_t { kRefuse, kSkip };

// Calls `visit` with every good record from byte `from` on (the end of a record; 0: all) and its offset in the file.
// kCorrupt where the file is no record log, or, under kRefuse, where good records follow a damaged one; an error of
// `visit` ends the reading.
Result<LogContent> read_log(const fs::path& path,
                            const std::function<Status(std::string_view record, uint64_t offset)>& visit,
                            Damage damage = Damage::kRefuse, uint64_t from = 0);

// The record at `offset`, as visited or returned by append.
Result<std::string> read_record(const fs::path& path, uint64_t offset);
// The same, of a log that is open to read and may have been moved; `path` names it in errors.
Result<std::string> read_record(const FileDescriptor& file, const fs::path& path, uint64_t offset);

class RecordLog {
 public:
  // Opens for appending, created where it is missing. `cut` gets the number of bytes that were torn off, if any. Bytes
  // before `from`, the end of a record, are not checked.
  static Result<RecordLog> open(const fs::path& path, uint64_t* cut = nullptr, Damage damage = Damage::kRefuse,
                                uint64_t from = 0);

  // Returns the record's offset. The record survives a crash of the process, not yet one of the machine.
  Result<uint64_t> append(std::string_view record);
  // Makes all appended records survive a crash of the machine.
  Status sync();
  // Bytes of the file: where the next record will be.
  uint64_t size() const { return size_; }

 private:
  RecordLog(fs::path path, FileDescriptor fd, uint64_t size)
      : path_(std::move(path)), fd_(std::move(fd)), size_(size) {}
  fs::path path_;
  FileDescriptor fd_;
  uint64_t size_ = 0;
};

}  // namespace tandem
