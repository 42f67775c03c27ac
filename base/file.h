// Reads files within a size limit and replaces them atomically.
#pragma once

#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <span>
#include <string>
#include <string_view>
#include <utility>

#include "base/status.h"

namespace tandem {

namespace fs = std::filesystem;

// Owns a file descriptor and closes it in the destructor. Move-only.
class FileDescriptor {
 public:
  FileDescriptor() = default;
  explicit FileDescriptor(int fd) : fd_(fd) {}
  FileDescriptor(FileDescriptor&& other) noexcept : fd_(std::exchange(other.fd_, -1)) {}
  FileDescriptor& operator=(FileDescriptor&& other) noexcept;
  ~FileDescriptor() { reset(); }
  int get() const { return fd_; }
  explicit operator bool() const { return fd_ >= 0; }
  int release() { return std::exchange(fd_, -1); }
  void reset();

 private:
  int fd_ = -1;
};

// Opens a regular file to read. kInvalid for anything else: the read of a pipe could block forever.
Result<FileDescriptor> open_regular_file(const fs::path& path);

// A read-only memory mapping of a whole file. Move-only.
class MappedFile {
 public:
  static Result<MappedFile> open(const fs::path& path);
  MappedFile(MappedFile&& other) noexcept : bytes_(std::exchange(other.bytes_, {})) {}
  MappedFile& operator=(MappedFile&& other) noexcept;
  ~MappedFile();
  std::span<const std::byte> bytes() const { return bytes_; }
  // Drops the pages before `byte` from this process's memory. A later access reads the file again.
  void release_before(uint64_t byte) const;

 private:
  explicit MappedFile(std::span<const std::byte> bytes) : bytes_(bytes) {}
  std::span<const std::byte> bytes_;
};

// Reads a whole regular file. kInvalid where it is larger than `limit` bytes, or not a regular file.
Result<std::string> read_file(const fs::path& path, uint64_t limit = uint64_t{1} << 30);

// Replaces `path` by `bytes`: temporary file in the same folder, fsync, rename, fsync of the folder. A reader, or a
// crash at any point, sees the old content or the new, never a part.
Status write_file(const fs::path& path, std::string_view bytes);
// The same for a sequence of parts, without concatenating them.
Status write_file(const fs::path& path, std::span<const std::string_view> parts);

// Bytes of all files in a folder, or of one file. Links and unreadable files do not count.
uint64_t bytes_below(const fs::path& path);

// Writes all bytes, or returns an error. Retries after signals and short writes.
Status write_all(int fd, std::string_view bytes, std::string_view name);

Status make_directories(const fs::path& path);
// Makes the last folder of `path`. kNotFound where its parent does not exist.
Status make_folder(const fs::path& path);

// Makes a private directory (mode 0700) below one that others may write to, or finds it. The parent must exist. kUnfit
// where the name belongs to another user or is not such a directory.
Status make_private_folder(const fs::path& path);

}  // namespace tandem
