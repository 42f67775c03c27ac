#include "envs/sandbox/folder_list.h"

#include <dirent.h>
#include <fcntl.h>
#include <fmt/format.h>
#include <sys/stat.h>
#include <sys/xattr.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <ctime>

#include "base/file.h"
#include "envs/sandbox/fields.h"

namespace tandem::envs {
namespace {

constexpr int kFoldersDeepest = 200;                            // one descriptor each
constexpr uint64_t kNumberBits = (uint64_t{1} << 56) - 1;       // an overlay names the layer in the bits above
constexpr int64_t kTick = 50'000'000, kSecond = 1'000'000'000;  // ns within which two changes may have one time

int64_t list_nanoseconds(const timespec& time) { return int64_t{time.tv_sec} * kSecond + time.tv_nsec; }

FileStamp stamp_from(const struct stat& info) {
  return {.mode = info.st_mode,
          .size = static_cast<uint64_t>(info.st_size),
          .modified = list_nanoseconds(info.st_mtim),
          .changed = list_nanoseconds(info.st_ctim),
          .number = info.st_ino & kNumberBits};
}

// Calls `meet(folder descriptor, name, path, stat)` for all below `root`, and goes into folders for which it says so.
// `refuse(path, is_too_deep)`: of what cannot be looked at, or lies too deep. What is refused is not known to be gone.
template <typename Meet, typename Refuse>
class FolderWalk {
 public:
  FolderWalk(const Meet& meet, const Refuse& refuse) : meet_(meet), refuse_(refuse) {}

  // An error of `meet` ends it.
  Status visit(FileDescriptor folder, const std::string& path, int depth) {
    DIR* const list = fdopendir(folder.get());
    if (!list) return refuse_(path, false);
    const int descriptor = folder.release();  // the list's from here on
    std::vector<std::string> folders;
    Status status;
    for (;;) {
      errno = 0;
      const dirent* const entry = readdir(list);
      if (!entry) {
        if (errno != 0) status = refuse_(path, false);
        break;
      }
      const char* const name = entry->d_name;
      if (strcmp(name, ".") == 0 || strcmp(name, "..") == 0) continue;
      struct stat info {};
      const auto below = path.empty() ? std::string(name) : path + '/' + name;
      if (fstatat(descriptor, name, &info, AT_SYMLINK_NOFOLLOW) != 0) {
        if (errno == ENOENT) continue;  // gone meanwhile
        status = refuse_(below, false);
        if (!status) break;
        continue;
      }
      bool enters = S_ISDIR(info.st_mode);
      status = meet_(descriptor, name, below, info, enters);
      if (!status) break;
      if (enters) folders.emplace_back(name);
    }
    for (size_t i = 0; status && i < folders.size(); ++i) {
      const auto below = path.empty() ? folders[i] : path + '/' + folders[i];
      if (depth == kFoldersDeepest) {
        status = refuse_(below, true);
        continue;
      }
      FileDescriptor next(
          openat(descriptor, folders[i].c_str(), O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC | O_NONBLOCK));
      status = next ? visit(std::move(next), below, depth + 1) : errno == ENOENT ? Status() : refuse_(below, false);
    }
    closedir(list);
    return status;
  }

 private:
  const Meet& meet_;
  const Refuse& refuse_;
};

template <typename Meet, typename Refuse>
Status walk_folder(const fs::path& root, const Meet& meet, const Refuse& refuse) {
  FileDescriptor folder(open(root.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC));
  if (!folder) return Status::from_errno(root.string(), errno);
  return FolderWalk<Meet, Refuse>(meet, refuse).visit(std::move(folder), "", 0);
}

bool can_be_read(int folder, const char* name, mode_t mode) {
  if (S_ISLNK(mode)) return true;
  const mode_t everybody = S_ISDIR(mode) ? 0555 : 0444;
  if ((mode & everybody) == everybody) return true;
  return faccessat(folder, name, S_ISDIR(mode) ? R_OK | X_OK : R_OK, AT_EACCESS) == 0;
}

// Whether an overlay has written notes of its own on the folder: another one on it would not show all files. So look
// the folders of container engines.
bool has_overlay_notes(const fs::path& folder) {
  char names[65536];  // the kernel's most
  const ssize_t size = listxattr(folder.c_str(), names, sizeof names);
  for (ssize_t at = 0; at < size;) {
    const std::string_view name(names + at);
    if (name.starts_with("user.overlay.") || name.starts_with("trusted.overlay.")) return true;
    at += static_cast<ssize_t>(name.size()) + 1;
  }
  return false;
}

// Times are the kernel's, some milliseconds apart. Who changes a file after it was listed gives it another one only
// where the next one has begun: files that were changed just before are looked at again.
Status settle(const fs::path& folder, FolderList& list) {
  timespec now{};
  clock_gettime(CLOCK_REALTIME, &now);
  int64_t newest = 0;
  for_each_listed(list.entries, [&](std::string_view, const FileStamp& stamp) {
    if (stamp.changed <= list_nanoseconds(now)) newest = std::max(newest, stamp.changed);
  });
  if (newest < list_nanoseconds(now) - kTick) return {};
  const timespec wait = {0, kTick};
  nanosleep(&wait, nullptr);
  std::string settled;
  settled.reserve(list.entries.size());
  for_each_listed(list.entries, [&](std::string_view path, const FileStamp& stamp) {
    struct stat info {};
    const bool is_new = stamp.changed >= newest - 2 * kTick && !S_ISDIR(stamp.mode);
    if (is_new && lstat((folder / path).c_str(), &info) == 0 && (info.st_mode & S_IFMT) == (stamp.mode & S_IFMT)) {
      put_listed(settled, path, stamp_from(info));
    } else {
      put_listed(settled, path, stamp);
    }
  });
  list.entries = std::move(settled);
  return {};
}

Result<std::string> content_of_file(int folder, const char* name, size_t most) {
  const FileDescriptor file(openat(folder, name, O_RDONLY | O_NOFOLLOW | O_NONBLOCK | O_CLOEXEC));
  struct stat info {};
  if (!file || fstat(file.get(), &info) != 0 || !S_ISREG(info.st_mode)) return fail(Status::not_found(name));
  std::string content;
  char buffer[65536];
  for (ssize_t count = 0; (count = read(file.get(), buffer, sizeof buffer)) != 0;) {
    if (count < 0 && errno == EINTR) continue;
    if (count < 0) return fail(Status::from_errno(name, errno));
    content.append(buffer, static_cast<size_t>(count));
    if (content.size() > most) return fail(Status::exhausted(name));
  }
  return content;
}

std::string link_target(int folder, const char* name) {
  std::string target(4096, '\0');
  const ssize_t length = readlinkat(folder, name, target.data(), target.size());
  target.resize(static_cast<size_t>(std::max<ssize_t>(length, 0)));
  return target;
}

// A path of a workspace that is other than it was; without a stamp where it is gone.
struct DifferentPath {
  std::string path;
  std::optional<FileStamp> stamp;
};

// The folder that a path lies in, held open; no link is followed. Paths may be longer than the kernel takes at once.
FileDescriptor parent_of(const fs::path& root, const std::string& path) {
  FileDescriptor folder(open(root.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC));
  for (size_t from = 0, to = path.find('/'); folder && to != std::string::npos; to = path.find('/', from)) {
    const auto name = path.substr(from, to - from);
    folder = FileDescriptor(openat(folder.get(), name.c_str(), O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC));
    from = to + 1;
  }
  return folder;
}

// Those from `page.from` on, in their order, with what they hold.
FolderDifference part_of(const fs::path& root, const std::vector<DifferentPath>& found, const FolderPage& page) {
  constexpr size_t kOfEntry = 64;
  FolderDifference part;
  uint64_t count = 0, bytes = 0, content = 0;
  std::string folder_path;
  FileDescriptor folder;
  auto each = std::lower_bound(found.begin(), found.end(), page.from,
                               [](const auto& one, const std::string& from) { return one.path < from; });
  for (; each != found.end(); ++each, ++count) {
    const auto& [path, stamp] = *each;
    const bool is_file = stamp && S_ISREG(stamp->mode);
    const uint64_t size = is_file ? stamp->size : 0;
    const bool is_large = size > kLargestChangedFile || size > page.left - std::min(page.left, content);
    const uint64_t takes = path.size() + kOfEntry + (is_large ? 0 : size);
    if (count > 0 && (count >= page.entries || bytes + takes > page.bytes)) break;
    bytes += takes;
    if (!stamp) {
      part.gone.push_back(path);
      continue;
    }
    const auto seconds = [](int64_t time) { return static_cast<uint64_t>(time / kSecond); };
    TreeEntry entry{.mode = static_cast<mode_t>(stamp->mode),
                    .seconds = seconds(stamp->modified),
                    .nanoseconds = static_cast<uint64_t>(stamp->modified % kSecond),
                    .path = path};
    if (is_large) {
      part.large.push_back(std::move(entry));
      continue;
    }
    const size_t slash = path.rfind('/');
    const auto above = slash == std::string::npos ? std::string() : path.substr(0, slash);
    const auto name = slash == std::string::npos ? path : path.substr(slash + 1);
    if (is_file || S_ISLNK(stamp->mode)) {
      if (!folder || above != folder_path) {
        folder = parent_of(root, path);
        folder_path = above;
      }
      auto text = is_file ? content_of_file(folder.get(), name.c_str(), size)
                          : Result<std::string>(link_target(folder.get(), name.c_str()));
      if (text) {
        content += is_file ? text->size() : 0;
        entry.content = std::move(*text);
      } else {
        entry.mode &= ~static_cast<mode_t>(S_IFMT);  // not to be read, or grown meanwhile
      }
    }
    part.other.push_back(std::move(entry));
  }
  if (each != found.end()) {
    part.next = each->path;
    part.rest = static_cast<uint64_t>(found.end() - each);
  }
  return part;
}

}  // namespace

bool same_file(const FileStamp& a, const FileStamp& b) {
  if (a.mode != b.mode) return false;
  if (S_ISDIR(a.mode)) return true;
  return a.size == b.size && a.modified == b.modified && a.changed == b.changed && a.number == b.number;
}

std::optional<FileStamp> stamp_of_file(const fs::path& path) {
  struct stat info {};
  if (lstat(path.c_str(), &info) != 0) return std::nullopt;
  return stamp_from(info);
}

void put_listed(std::string& entries, std::string_view path, const FileStamp& stamp) {
  for (const uint64_t number : {uint64_t{stamp.mode}, stamp.size, static_cast<uint64_t>(stamp.modified),
                                static_cast<uint64_t>(stamp.changed), stamp.number})
    put_number(entries, number);
  entries.append(path).push_back('\0');
}

std::optional<ListedEntry> take_listed(std::string_view& entries) {
  constexpr size_t kStamp = 5 * sizeof(uint64_t);
  if (entries.size() <= kStamp) return std::nullopt;
  uint64_t numbers[5];
  memcpy(numbers, entries.data(), kStamp);
  const size_t end = entries.find('\0', kStamp);
  if (end == std::string_view::npos || end == kStamp) return std::nullopt;
  ListedEntry entry{.path = entries.substr(kStamp, end - kStamp),
                    .stamp = {.mode = static_cast<uint32_t>(numbers[0]),
                              .size = numbers[1],
                              .modified = static_cast<int64_t>(numbers[2]),
                              .changed = static_cast<int64_t>(numbers[3]),
                              .number = numbers[4]}};
  entries.remove_prefix(end + 1);
  return entry;
}

std::unordered_map<std::string_view, FileStamp> FolderList::by_path() const {
  std::unordered_map<std::string_view, FileStamp> all;
  all.reserve(count);
  for_each_listed(entries, [&](std::string_view path, const FileStamp& stamp) { all.emplace(path, stamp); });
  return all;
}

Result<FolderList> list_folder(const fs::path& folder, const LeavesOut& leaves_out) {
  struct stat top {};
  if (stat(folder.c_str(), &top) != 0 || !S_ISDIR(top.st_mode))
    return fail(Status::invalid(folder.string() + " is no folder that can be read"));
  FolderList list;
  list.has_overlay_notes = has_overlay_notes(folder);
  const auto hide = [&](const std::string& path, Hidden why) -> Status {
    list.hidden.push_back({path, why});
    return {};
  };
  const auto meet = [&](int at, const char* name, const std::string& path, const struct stat& info,
                        bool& enters) -> Status {
    if (list.count + list.hidden.size() >= kMostListedFiles)
      return Status::exhausted(fmt::format("there are more than {} files and folders", kMostListedFiles));
    const bool is_left_out = leaves_out && leaves_out(path);
    const bool is_special =
        !S_ISREG(info.st_mode) && !S_ISDIR(info.st_mode) && !S_ISLNK(info.st_mode) && !S_ISFIFO(info.st_mode);
    if (is_left_out || is_special || !can_be_read(at, name, info.st_mode)) {
      enters = false;
      return hide(path, is_left_out ? Hidden::kLeftOut : is_special ? Hidden::kSpecial : Hidden::kUnreadable);
    }
    list.has_mounts = list.has_mounts || (S_ISDIR(info.st_mode) && info.st_dev != top.st_dev);
    list.has_overlay_notes = list.has_overlay_notes || (S_ISDIR(info.st_mode) && has_overlay_notes(folder / path));
    put_listed(list.entries, path, stamp_from(info));
    ++list.count;
    if (info.st_uid != geteuid() || info.st_gid != getegid()) ++list.foreign;
    if (!S_ISDIR(info.st_mode)) ++list.files;
    if (S_ISREG(info.st_mode)) list.bytes += static_cast<uint64_t>(info.st_size);
    return {};
  };
  TRY(walk_folder(folder, meet, [&](const std::string& path, bool) { return hide(path, Hidden::kUnreadable); }));
  TRY(settle(folder, list));
  return list;
}

Result<FolderDifference> difference_from(const fs::path& root, std::string_view begin, std::string_view meanwhile,
                                         const FolderPage& page) {
  struct Known {
    FileStamp stamp;
    bool is_there = false;
  };
  std::unordered_map<std::string_view, Known> known;
  std::unordered_map<std::string_view, FileStamp> later;
  const bool is_whole =
      for_each_listed(begin,
                      [&](std::string_view path, const FileStamp& stamp) { known.emplace(path, Known{stamp}); }) &&
      for_each_listed(meanwhile, [&](std::string_view path, const FileStamp& stamp) { later.emplace(path, stamp); });
  if (!is_whole) return fail(Status::corrupt("the list of a folder's files cannot be read"));
  std::vector<DifferentPath> found;
  std::vector<std::string> closed;
  const auto meet = [&](int, const char*, const std::string& path, const struct stat& info, bool&) -> Status {
    if (S_ISSOCK(info.st_mode)) return {};
    const auto stamp = stamp_from(info);
    if (const auto at = known.find(path); at != known.end()) {
      at->second.is_there = true;
      // The overlay may still have what somebody has replaced in the folder since; nothing of a workspace looks so.
      if (info.st_nlink == 0) return {};
      if (same_file(at->second.stamp, stamp)) return {};
    }
    if (const auto at = later.find(path); at != later.end() && same_file(at->second, stamp)) return {};
    found.push_back({path, stamp});
    return {};
  };
  TRY(walk_folder(root, meet, [&](const std::string& path, bool is_too_deep) -> Status {
    if (is_too_deep) return Status::exhausted(fmt::format("folders lie more than {} deep", kFoldersDeepest));
    if (path.empty()) return Status::unavailable("the workspace cannot be read");
    closed.push_back(path + '/');
    return {};
  }));
  for (const auto& [path, entry] : known) {
    if (entry.is_there) continue;
    const auto hides = [at = std::string(path) + '/'](const std::string& folder) { return at.starts_with(folder); };
    if (std::none_of(closed.begin(), closed.end(), hides)) found.push_back({std::string(path), std::nullopt});
  }
  std::sort(found.begin(), found.end(), [](const auto& a, const auto& b) { return a.path < b.path; });
  return part_of(root, found, page);
}

std::string encode(const FolderDifference& difference) {
  std::string bytes;
  put_text(bytes, pack_entries(difference.other));
  put_number(bytes, difference.gone.size());
  for (const auto& path : difference.gone) put_text(bytes, path);
  put_text(bytes, pack_entries(difference.large));
  put_text(bytes, difference.next);
  put_number(bytes, difference.rest);
  return bytes;
}

Result<FolderDifference> decode_folder_difference(std::string_view bytes) {
  FieldReader fields(bytes);
  FolderDifference difference;
  difference.other = TRY(read_tree(TRY(fields.text())));
  for (uint64_t left = TRY(fields.number()); left > 0; --left) difference.gone.push_back(TRY(fields.text()));
  difference.large = TRY(read_tree(TRY(fields.text())));
  difference.next = TRY(fields.text());
  difference.rest = TRY(fields.number());
  return difference;
}

}  // namespace tandem::envs
