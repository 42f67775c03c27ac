#include "standby/copy.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>

namespace tandem::standby {
namespace {

Status add_found(const fs::path& path, const std::string& name, std::vector<FoundFile>& found) {
  if (found.size() >= kMostFiles)
    return Status::exhausted(fmt::format("a copy has {} files at most", kMostFiles)).at(path.string());
  std::error_code error;
  if (fs::is_symlink(path, error)) {
    found.push_back({.path = name, .digest = {}, .link = fs::read_symlink(path, error).string()});
    return {};
  }
  const auto mapped = TRY(MappedFile::open(path));
  found.push_back({.path = name, .bytes = mapped.bytes().size(), .digest = digest_of(mapped.bytes()), .link = ""});
  return {};
}

Status write_at(int file, std::span<const std::byte> bytes, uint64_t offset, const std::string& name) {
  while (!bytes.empty()) {
    const ssize_t written = ::pwrite(file, bytes.data(), bytes.size(), static_cast<off_t>(offset));
    if (written < 0 && errno == EINTR) continue;
    if (written <= 0) return Status::from_errno(name, errno);
    bytes = bytes.subspan(static_cast<size_t>(written));
    offset += static_cast<uint64_t>(written);
  }
  return {};
}

Status sync_path(const fs::path& path, int flags) {
  const FileDescriptor file(::open(path.c_str(), flags | O_CLOEXEC));
  if (!file) return errno == ENOENT ? Status() : Status::from_errno(path.string(), errno);
  return ::fsync(file.get()) == 0 ? Status() : Status::from_errno(path.string(), errno);
}

}  // namespace

Result<std::vector<FoundFile>> Copy::survey(const std::vector<std::string>& paths) {
  std::vector<FoundFile> found;
  std::error_code error;
  // What came in when the last life ended is not of this one.
  std::erase_if(coming_, [&](const auto& entry) {
    const bool is_ours = std::any_of(paths.begin(), paths.end(),
                                     [&](const std::string& path) { return is_at_or_below(entry.first, path); });
    if (is_ours) fs::remove(aside(entry.first), error);
    return is_ours;
  });
  for (const std::string& path : paths) {
    const fs::path at = folder_ / path;
    if (!fs::is_directory(fs::symlink_status(at, error))) {
      if (fs::exists(fs::symlink_status(at, error))) TRY(add_found(at, path, found));
      continue;
    }
    for (auto it = fs::recursive_directory_iterator(at, error); it != fs::recursive_directory_iterator();
         it.increment(error)) {
      if (it->is_symlink(error) || it->is_regular_file(error))
        TRY(add_found(it->path(), it->path().lexically_relative(folder_).generic_string(), found));
    }
    if (error) return fail(Status::from_errno(at.string(), error.value()));
  }
  return found;
}

Status Copy::make_parents(const std::string& path) {
  fs::path at = folder_;
  const fs::path parents = fs::path(path).parent_path();
  std::error_code error;
  for (const fs::path& part : parents) {
    const fs::path above = at;
    at /= part;
    if (fs::is_directory(fs::symlink_status(at, error))) continue;
    if (!fs::create_directory(at, error)) return Status::from_errno(at.string(), error ? error.value() : ENOTDIR);
    changed_folders_.insert(above);
  }
  return {};
}

Result<Copy::Log*> Copy::log(const std::string& path) {
  if (const auto found = logs_.find(path); found != logs_.end()) return &found->second;
  TRY(make_parents(path));
  const fs::path at = folder_ / path;
  FileDescriptor file(::open(at.c_str(), O_RDWR | O_CREAT | O_CLOEXEC | O_NOFOLLOW, 0644));
  struct stat info {};
  if (!file || ::fstat(file.get(), &info) != 0) return fail(Status::from_errno(at.string(), errno));
  if (!S_ISREG(info.st_mode)) return fail(Status::invalid("this is no file").at(at.string()));
  changed_folders_.insert(at.parent_path());
  return &(logs_[path] = {.file = std::move(file), .size = static_cast<uint64_t>(info.st_size)});
}

Status Copy::extend(const Extend& extend, std::span<const std::byte> bytes) {
  Log& log = *TRY(this->log(extend.path));
  if (log.size != extend.offset)
    return Status::invalid(fmt::format("{} has {} bytes, and not {}", extend.path, log.size, extend.offset));
  log.is_changed = true;
  TRY(write_at(log.file.get(), bytes, extend.offset, extend.path));
  log.size += bytes.size();
  return {};
}

fs::path Copy::aside(const std::string& path) const {
  const fs::path at = folder_ / path;
  return at.parent_path() / fmt::format(".{}.tmp", at.filename().string());
}

Status Copy::put(const Put& put, std::span<const std::byte> bytes) {
  const fs::path at = folder_ / put.path, beside = aside(put.path);
  if (put.offset == 0) {
    TRY(make_parents(put.path));
    const int mode = put.is_executable ? 0755 : 0644;
    FileDescriptor file(::open(beside.c_str(), O_RDWR | O_CREAT | O_TRUNC | O_CLOEXEC | O_NOFOLLOW, mode));
    if (!file) return Status::from_errno(beside.string(), errno);
    coming_[put.path] = {.file = std::move(file)};
  }
  const auto found = coming_.find(put.path);
  if (found == coming_.end() || found->second.have != put.offset)
    return Status::invalid(fmt::format("a part of {} does not follow the one before", put.path));
  Coming& coming = found->second;
  TRY(write_at(coming.file.get(), bytes, put.offset, put.path));
  coming.have += bytes.size();
  if (coming.have < put.total) return {};
  const bool is_synced = ::fsync(coming.file.get()) == 0;
  if (!is_synced) return Status::from_errno(beside.string(), errno);
  coming_.erase(found);
  if (put.total > 0 && digest_of(TRY(MappedFile::open(beside)).bytes()) != put.digest)
    return Status::corrupt(fmt::format("{} came in with other bytes than were sent", put.path));
  std::error_code error;
  logs_.erase(put.path);
  fs::rename(beside, at, error);
  if (error) return Status::from_errno(at.string(), error.value());
  changed_folders_.insert(at.parent_path());
  return {};
}

Status Copy::link(const Link& link) {
  TRY(make_parents(link.path));
  const fs::path at = folder_ / link.path, beside = aside(link.path);
  std::error_code error;
  fs::remove(beside, error);
  fs::create_symlink(link.target, beside, error);
  if (!error) fs::rename(beside, at, error);
  if (error) return Status::from_errno(at.string(), error.value());
  changed_folders_.insert(at.parent_path());
  return {};
}

Status Copy::remove(const Remove& remove) {
  const auto is_below = [&](const auto& entry) { return is_at_or_below(entry.first, remove.path); };
  std::erase_if(logs_, is_below);
  const fs::path at = folder_ / remove.path;
  std::error_code error;
  fs::remove_all(at, error);
  if (error) return Status::from_errno(at.string(), error.value());
  changed_folders_.insert(at.parent_path());
  return {};
}

Status Copy::sync() {
  for (auto& [path, log] : logs_) {
    if (!std::exchange(log.is_changed, false)) continue;
    if (::fdatasync(log.file.get()) != 0) return Status::from_errno((folder_ / path).string(), errno);
  }
  for (const fs::path& folder : std::exchange(changed_folders_, {})) TRY(sync_path(folder, O_RDONLY | O_DIRECTORY));
  return {};
}

}  // namespace tandem::standby
