#include "envs/sandbox/file_tree.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <vector>

#include "base/file.h"
#include "envs/sandbox/fields.h"

namespace tandem::envs {
namespace {

bool is_below_root(const fs::path& path) {
  if (path.empty() || path.is_absolute()) return false;
  for (const auto& part : path) {
    if (part.empty() || part == "." || part == "..") return false;
  }
  return path.string().find('\0') == std::string::npos;
}

Status check(int result, const std::string& path) { return result < 0 ? Status::from_errno(path, errno) : Status(); }

// Links are made after everything else, so that no path leads through one.
Status make(const fs::path& root, const TreeEntry& entry) {
  const auto path = (root / entry.path).string();
  switch (entry.mode & S_IFMT) {
    case 0:
      return {};
    case S_IFDIR:
      if (mkdir(path.c_str(), 0700) == 0) return {};
      return errno == EEXIST && path.starts_with(kPlaces) ? Status() : Status::from_errno(entry.path, errno);
    case S_IFREG: {
      FileDescriptor file(open(path.c_str(), O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC | O_NOFOLLOW, 0600));
      if (!file) return Status::from_errno(entry.path, errno);
      return write_all(file.get(), entry.content, entry.path);
    }
    case S_IFIFO:
      return check(mkfifo(path.c_str(), 0600), entry.path);
    case S_IFLNK:
      return check(symlink(entry.content.c_str(), path.c_str()), entry.path);
  }
  return Status::corrupt("a snapshot has something at \"" + entry.path +
                         "\" that is neither file, folder, link nor pipe");
}

Status finish(const fs::path& root, const TreeEntry& entry) {
  if ((entry.mode & S_IFMT) == 0) return {};
  const auto path = (root / entry.path).string();
  if (!S_ISLNK(entry.mode)) TRY(check(chmod(path.c_str(), entry.mode & 07777), entry.path));
  const timespec times[2] = {
      {0, UTIME_OMIT}, {static_cast<time_t>(entry.seconds), static_cast<long>(entry.nanoseconds % 1'000'000'000)}};
  return check(utimensat(AT_FDCWD, path.c_str(), times, AT_SYMLINK_NOFOLLOW), entry.path);
}

// Folders that are mounted elsewhere, or that others are mounted in, stay, empty.
Status clear(const fs::path& root) {
  std::error_code error;
  for (const auto& entry : fs::directory_iterator(root, error)) {
    const auto path = entry.path().string();
    if ((path == kPlaces || root == kPlaces) && fs::is_directory(fs::symlink_status(path, error))) {
      TRY(clear(path));
      continue;
    }
    fs::remove_all(path, error);
    if (error == std::errc::device_or_resource_busy && path.starts_with(kPlaces)) continue;
    if (error) return Status::unavailable(entry.path().filename().string() + ": " + error.message());
  }
  return {};
}

void put_entry(std::string& bytes, const TreeEntry& entry) {
  put_number(bytes, entry.mode);
  put_number(bytes, entry.seconds);
  put_number(bytes, entry.nanoseconds);
  put_text(bytes, entry.path);
  put_text(bytes, entry.content);
}

}  // namespace

std::string pack_entries(std::span<const TreeEntry> entries) {
  std::string bytes;
  put_number(bytes, entries.size());
  for (const auto& entry : entries) put_entry(bytes, entry);
  return bytes;
}

Result<std::vector<TreeEntry>> read_tree(std::string_view bytes) {
  FieldReader fields(bytes);
  std::vector<TreeEntry> entries;
  for (uint64_t count = TRY(fields.number()); count > 0; --count) {
    TreeEntry entry;
    entry.mode = static_cast<mode_t>(TRY(fields.number()));
    entry.seconds = TRY(fields.number());
    entry.nanoseconds = TRY(fields.number());
    entry.path = TRY(fields.text());
    entry.content = TRY(fields.text());
    if (!is_below_root(entry.path)) return fail(Status::corrupt("a snapshot names \"" + entry.path + "\""));
    entries.push_back(std::move(entry));
  }
  return entries;
}

Result<std::string> pack_tree(const fs::path& root, size_t limit, const LeavesOut& leaves_out) {
  std::string bytes;
  uint64_t count = 0;
  std::error_code error;
  // Folders come before what is in them.
  fs::recursive_directory_iterator walk(root, fs::directory_options::skip_permission_denied, error);
  for (; !error && walk != fs::recursive_directory_iterator(); walk.increment(error)) {
    struct stat info {};
    const auto& path = walk->path();
    if (lstat(path.c_str(), &info) != 0 || S_ISSOCK(info.st_mode)) continue;  // gone meanwhile
    if (S_ISCHR(info.st_mode) || S_ISBLK(info.st_mode)) continue;
    TreeEntry entry{.mode = info.st_mode,
                    .seconds = static_cast<uint64_t>(info.st_mtim.tv_sec),
                    .nanoseconds = static_cast<uint64_t>(info.st_mtim.tv_nsec),
                    .path = path.lexically_relative(root).string()};
    if (leaves_out && leaves_out(entry.path)) {
      if (S_ISDIR(info.st_mode)) walk.disable_recursion_pending();
      continue;
    }
    std::error_code gone;
    if (S_ISLNK(info.st_mode)) entry.content = fs::read_symlink(path, gone).string();
    if (gone) continue;
    const size_t size = S_ISREG(info.st_mode) ? static_cast<size_t>(info.st_size) : entry.content.size();
    if (bytes.size() + size + entry.path.size() + 64 > limit || count == kMostTreeEntries) {
      return fail(Status::exhausted("a snapshot takes " + std::to_string(kMostTreeEntries) + " files of " +
                                    std::to_string(kLargestTree >> 20) + " MiB together, and there is more"));
    }
    if (S_ISREG(info.st_mode)) {
      if (auto read = read_file(path, size)) {
        entry.content = std::move(*read);
      } else {
        entry.mode &= ~static_cast<mode_t>(S_IFMT);  // not to be read, or grown meanwhile
      }
    }
    ++count;
    put_entry(bytes, entry);
  }
  // What was not reached must not look as if it were not there.
  if (error) return fail(Status::unavailable("a folder was changed while it was read: " + error.message()));
  std::string packed;
  put_number(packed, count);
  return packed + bytes;
}

Status unpack_tree(const fs::path& root, std::string_view bytes) {
  const auto entries = TRY(read_tree(bytes));
  TRY(clear(root));
  for (const bool links : {false, true}) {
    for (const auto& entry : entries) {
      if (S_ISLNK(entry.mode) == links) TRY(make(root, entry));
    }
  }
  // From the inside out: what is made in a folder changes its time, and its mode may forbid it.
  for (auto entry = entries.rbegin(); entry != entries.rend(); ++entry) TRY(finish(root, *entry));
  return {};
}

}  // namespace tandem::envs
