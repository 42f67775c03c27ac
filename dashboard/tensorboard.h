// Scalars in the files that TensorBoard reads, without TensorBoard.
//
// A file is TFRecords of Event messages: length (u64), masked CRC-32C of it (u32), the message, masked CRC-32C of it,
// all little-endian; the first says "brain.Event:2". Every process life writes a file of its own; TensorBoard joins
// those of one folder. What is written survives the process; a record cut short by a crash is skipped by readers.
//
// Thread safety: none; one owner a writer.
#pragma once

#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "base/clock.h"
#include "base/file.h"
#include "base/json.h"

namespace tandem::dashboard {

// Castagnoli's polynomial; of "123456789" it is 0xe3069283.
uint32_t crc32c(std::string_view bytes);
// As TFRecord stores it, so that a CRC of data with CRCs in it stays a check.
uint32_t masked_crc32c(std::string_view bytes);

using Scalar = std::pair<std::string, double>;

// A line of metrics.jsonl as scalars: numbers by their names, those of nested objects as "outer/inner". Step and time
// are left out, and so is what is not a finite number.
std::vector<Scalar> scalars_of(const Json& metrics_line);

class EventFile {
 public:
  // A new file in `folder`, which is made where it is missing; named by time, host and process.
  static Result<EventFile> create(const fs::path& folder, const Clock& clock);

  Status add(int64_t step, double unix_seconds, const std::vector<Scalar>& scalars);
  // A line of metrics.jsonl, with its own step and time.
  Status add_line(const Json& metrics_line);

  const fs::path& path() const { return path_; }

 private:
  EventFile(fs::path path, FileDescriptor file) : path_(std::move(path)), file_(std::move(file)) {}
  Status append(std::string_view message);
  fs::path path_;
  FileDescriptor file_;
};

}  // namespace tandem::dashboard
