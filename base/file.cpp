#include "base/file.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>

namespace tandem {

FileDescriptor& FileDescriptor::operator=(FileDescriptor&& other) noexcept {
  if (this != &other) {
    reset();
    fd_ = std::exchange(other.fd_, -1);
  }
  return *this;
}

void FileDescriptor::reset() {
  if (fd_ >= 0) ::close(std::exchange(fd_, -1));
}

Result<FileDescriptor> open_regular_file(const fs::path& path) {
  // Not to wait for the other end of a pipe; to a regular file it means nothing.
  FileDescriptor fd(::open(path.c_str(), O_RDONLY | O_NONBLOCK | O_NOCTTY | O_CLOEXEC));
  struct stat info {};
  if (!fd || ::fstat(fd.get(), &info) != 0) {
    const int error = errno;
    // What has no such end, as a socket, cannot even be opened.
    std::error_code ignored;
    if (!fs::is_other(path, ignored)) return fail(Status::from_errno(path.string(), error));
  }
  if (!S_ISREG(info.st_mode)) return fail(Status::invalid("is not a regular file").at(path.string()));
  return fd;
}

Result<MappedFile> MappedFile::open(const fs::path& path) {
  const FileDescriptor fd = TRY(open_regular_file(path));
  struct stat info {};
  if (::fstat(fd.get(), &info) != 0) return fail(Status::from_errno(path.string(), errno));
  const auto size = static_cast<size_t>(info.st_size);
  if (size == 0) return MappedFile(std::span<const std::byte>{});
  void* data = ::mmap(nullptr, size, PROT_READ, MAP_PRIVATE, fd.get(), 0);
  if (data == MAP_FAILED) return fail(Status::from_errno("mmap " + path.string(), errno));
  return MappedFile({static_cast<const std::byte*>(data), size});
}

MappedFile& MappedFile::operator=(MappedFile&& other) noexcept {
  std::swap(bytes_, other.bytes_);
  return *this;
}

MappedFile::~MappedFile() {
  if (!bytes_.empty()) ::munmap(const_cast<std::byte*>(bytes_.data()), bytes_.size());
}

void MappedFile::release_before(uint64_t byte) const {
  const auto page = static_cast<uint64_t>(::sysconf(_SC_PAGESIZE));
  const uint64_t length = std::min<uint64_t>(byte, bytes_.size()) / page * page;
  if (length > 0) (void)::madvise(const_cast<std::byte*>(bytes_.data()), length, MADV_DONTNEED);
}

Result<std::string> read_file(const fs::path& path, uint64_t limit) {
  const FileDescriptor fd = TRY(open_regular_file(path));
  std::string content;
  char buffer[1 << 16];
  for (;;) {
    const ssize_t count = ::read(fd.get(), buffer, sizeof buffer);
    if (count < 0 && errno == EINTR) continue;
    if (count < 0) return fail(Status::from_errno(path.string(), errno));
    if (count == 0) return content;
    content.append(buffer, static_cast<size_t>(count));
    if (content.size() > limit) {
      return fail(Status::invalid(fmt::format("larger than the limit of {} bytes", limit)).at(path.string()));
    }
  }
}

Status write_all(int fd, std::string_view bytes, std::string_view name) {
  while (!bytes.empty()) {
    const ssize_t count = ::write(fd, bytes.data(), bytes.size());
    if (count < 0 && errno == EINTR) continue;
    if (count < 0) return Status::from_errno(fmt::format("write {}", name), errno);
    bytes.remove_prefix(static_cast<size_t>(count));
  }
  return {};
}

Status write_file(const fs::path& path, std::string_view bytes) { return write_file(path, std::span(&bytes, 1)); }

Status write_file(const fs::path& path, std::span<const std::string_view> parts) {
  const fs::path folder = path.parent_path().empty() ? fs::path(".") : path.parent_path();
  const fs::path temporary = folder / fmt::format(".{}.{}.tmp", path.filename().string(), ::getpid());
  const auto write = [&]() -> Status {
    FileDescriptor fd(::open(temporary.c_str(), O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0644));
    if (!fd) return Status::from_errno(temporary.string(), errno);
    for (const std::string_view part : parts) TRY(write_all(fd.get(), part, temporary.string()));
    if (::fsync(fd.get()) != 0) return Status::from_errno("fsync " + temporary.string(), errno);
    if (::rename(temporary.c_str(), path.c_str()) != 0) return Status::from_errno("rename " + path.string(), errno);
    FileDescriptor directory(::open(folder.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC));
    if (directory && ::fsync(directory.get()) != 0) return Status::from_errno("fsync " + folder.string(), errno);
    return {};
  };
  Status status = write();
  if (!status.ok()) ::unlink(temporary.c_str());
  return status;
}

Status make_private_folder(const fs::path& path) {
  if (::mkdir(path.c_str(), 0700) != 0 && errno != EEXIST) return Status::from_errno(path.string(), errno);
  struct stat info {};
  if (::lstat(path.c_str(), &info) != 0) return Status::from_errno(path.string(), errno);
  if (!S_ISDIR(info.st_mode) || info.st_uid != ::geteuid() || (info.st_mode & 077) != 0)
    return Status::unfit(path.string() + " is not a folder of this user alone")
        .hint("remove it, or have its owner remove it");
  return {};
}

Status make_folder(const fs::path& path) {
  std::error_code error;
  fs::create_directory(path, error);
  if (error) return Status::from_errno("create folder " + path.string(), error.value());
  return {};
}

Status make_directories(const fs::path& path) {
  std::error_code error;
  fs::create_directories(path, error);
  if (error) return Status::from_errno("create folder " + path.string(), error.value());
  return {};
}

uint64_t bytes_below(const fs::path& path) {
  std::error_code error;
  if (fs::is_symlink(path, error)) return 0;
  if (!fs::is_directory(path, error)) {
    const uint64_t size = fs::file_size(path, error);
    return error ? 0 : size;
  }
  uint64_t bytes = 0;
  for (auto it = fs::recursive_directory_iterator(path, error); it != fs::recursive_directory_iterator();
       it.increment(error)) {
    std::error_code gone;
    if (it->is_symlink(gone) || !it->is_regular_file(gone)) continue;
    const uint64_t size = it->file_size(gone);
    if (!gone) bytes += size;
  }
  return bytes;
}

}  // namespace tandem
