#include "envs/sandbox/overlay.h"

#include <fcntl.h>
#include <linux/mount.h>
#include <poll.h>
#include <sys/mman.h>
#include <sys/mount.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/sysmacros.h>
#include <sys/xattr.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <vector>

#include "envs/sandbox/confine.h"
#include "envs/sandbox/descriptors.h"
#include "envs/sandbox/request_kind.h"
#include "envs/sandbox/tmpfs_options.h"

namespace tandem::envs {
namespace {

constexpr const char* kFolderParts = "folder";  // the message that has them

Status unfit_unless(bool worked, const std::string& what) {
  if (worked) return {};
  return Status::unfit(Status::from_errno(what, errno).message());
}

std::string text_of_file(const FileDescriptor& file) {
  std::string text;
  char buffer[65536];
  for (off_t at = 0;;) {
    const ssize_t count = pread(file.get(), buffer, sizeof buffer, at);
    if (count <= 0) return text;
    text.append(buffer, static_cast<size_t>(count));
    at += count;
  }
}

// A folder of the upper layer as the one below that it covers. What belongs to somebody else is no more open than it
// was.
Status cover(const std::string& folder, const std::string& below) {
  struct stat info {};
  TRY(unfit_unless(lstat(below.c_str(), &info) == 0, below));
  mode_t mode = info.st_mode & 07777;
  if (geteuid() == 0) {
    TRY(unfit_unless(chown(folder.c_str(), info.st_uid, info.st_gid) == 0, folder));
  } else if (info.st_uid != geteuid())
    mode = (mode & 07077) | ((mode & 07) << 6);
  TRY(unfit_unless(chmod(folder.c_str(), mode) == 0, folder));
  const timespec times[2] = {info.st_atim, info.st_mtim};
  return unfit_unless(utimensat(AT_FDCWD, folder.c_str(), times, 0) == 0, folder);
}

// As an overlay notes that something is gone.
Status hide(const std::string& files, const std::string& below, std::string_view path) {
  std::vector<std::string> parents;
  for (auto slash = path.find('/'); slash != std::string_view::npos; slash = path.find('/', slash + 1)) {
    parents.push_back("/" + std::string(path.substr(0, slash)));
    const auto folder = files + parents.back();
    if (mkdir(folder.c_str(), 0700) == 0) continue;
    TRY(unfit_unless(errno == EEXIST, folder));
  }
  const auto place = files + "/" + std::string(path);
  struct stat info {};
  if (lstat((below + "/" + std::string(path)).c_str(), &info) != 0 && errno == ENOENT) return {};  // gone meanwhile
  return unfit_unless(mknod(place.c_str(), S_IFCHR, makedev(0, 0)) == 0, "hiding " + std::string(path));
}

// From the inside out: what is made in a folder changes its time.
Status cover_all(const std::string& files, const std::string& below) {
  std::vector<std::string> folders = {""};
  std::error_code error;
  for (fs::recursive_directory_iterator entry(files, error), end; !error && entry != end; entry.increment(error)) {
    if (entry->symlink_status(error).type() == fs::file_type::directory)
      folders.push_back(entry->path().native().substr(files.size()));
  }
  if (error) return Status::from_errno(files, error.value());
  for (auto folder = folders.rbegin(); folder != folders.rend(); ++folder) {
    struct stat info {};
    if (lstat((below + *folder).c_str(), &info) == 0) TRY(cover(files + *folder, below + *folder));
  }
  return {};
}

}  // namespace

Result<FileDescriptor> detached_overlay(std::span<const std::pair<const char*, std::string>> options) {
  const FileDescriptor context(static_cast<int>(syscall(SYS_fsopen, "overlay", FSOPEN_CLOEXEC)));
  if (!context) return fail(Status::from_errno("overlay", errno));
  for (const auto& [key, value] : options) {
    const char* const text = value.empty() ? nullptr : value.c_str();
    const auto kind = text ? FSCONFIG_SET_STRING : FSCONFIG_SET_FLAG;
    if (syscall(SYS_fsconfig, context.get(), kind, key, text, 0) != 0) return fail(Status::from_errno(key, errno));
  }
  if (syscall(SYS_fsconfig, context.get(), FSCONFIG_CMD_CREATE, nullptr, nullptr, 0) != 0)
    return fail(Status::from_errno("overlay", errno));
  FileDescriptor made(
      static_cast<int>(syscall(SYS_fsmount, context.get(), FSMOUNT_CLOEXEC, MOUNT_ATTR_NOSUID | MOUNT_ATTR_NODEV)));
  if (!made) return fail(Status::from_errno("overlay", errno));
  return made;
}

Result<FileDescriptor> send_folder_below(const FolderBelow& below) {
  std::string text;
  for (const auto& path : below.hidden) text.append(path).push_back('\0');
  const FileDescriptor hidden(memfd_create("tandem-hidden", MFD_CLOEXEC));
  if (!hidden) return fail(Status::from_errno("memfd", errno));
  TRY(write_all(hidden.get(), text, "hidden paths"));
  FileDescriptor bound;
  if (geteuid() == 0) bound = TRY(bound_folder(below.folder, BoundMounts::kNo));
  int ends[2];
  if (socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, ends) != 0)
    return fail(Status::from_errno("socketpair", errno));
  FileDescriptor ours(ends[0]), theirs(ends[1]);
  TRY(send_descriptors(ours.get(), kFolderParts, {hidden.get(), bound.get()}));
  return theirs;
}

Result<FileTrees> trees_of_folder(const FolderBelow& below) {
  const User owner = outer_user(below.folder);
  FileTrees trees;
  trees.workspace = TRY(bound_folder(below.folder, BoundMounts::kNo));
  trees.temporary = TRY(empty_temporary(owner));
  return trees;
}

Result<FileTrees> trees_of_hidden(const FolderBelow& below, const FileTrees& folder) {
  const User owner = outer_user(below.folder);
  FileTrees trees;
  trees.workspace = TRY(empty_temporary(owner));
  trees.temporary = TRY(empty_temporary(owner));
  const auto place = [](const FileDescriptor& tree) { return "/proc/self/fd/" + std::to_string(tree.get()) + "/."; };
  const auto files = place(trees.workspace), lower = place(folder.workspace);
  for (const auto& path : below.hidden) TRY(hide(files, lower, path));
  TRY(cover_all(files, lower));
  return trees;
}

Result<FolderParts> receive_folder_below(const FolderBelow& below, const FileDescriptor& socket) {
  pollfd wait = {socket.get(), POLLIN, 0};
  if (poll(&wait, 1, 20'000) <= 0) return fail(Status::deadline("the folder to begin on did not come"));
  auto received = receive(socket.get(), 1024);
  if (received.text != kFolderParts) {
    if (received.text != kWorked || received.descriptors.size() != 4)
      return fail(Status::unavailable("the folder to begin on: " + received.text));
    return FolderParts{.bound = {}, .hidden = {}, .trees = std::move(received.descriptors)};
  }
  if (received.descriptors.empty()) return fail(Status::unavailable("the folder to begin on did not come"));
  FolderParts parts{.bound = {}, .hidden = std::move(received.descriptors[0]), .trees = {}};
  if (received.descriptors.size() > 1) parts.bound = std::move(received.descriptors[1]);
  if (!parts.bound) parts.bound = TRY(bound_folder(below.folder, BoundMounts::kNo));
  return parts;
}

Result<FileDescriptor> workspace_over(const FolderParts& parts, uint64_t disk_bytes, const std::string& place) {
  const auto hidden = text_of_file(parts.hidden);
  const auto paths = static_cast<uint64_t>(std::count(hidden.begin(), hidden.end(), '\0'));

  const auto size = "mode=755," + tmpfs_bounds(disk_bytes, 4 * paths);
  TRY(unfit_unless(mount("tandem", place.c_str(), "tmpfs", MS_NOSUID | MS_NODEV, size.c_str()) == 0, "tmpfs"));
  const auto files = place + "/files", work = place + "/work", lower = place + "/below";
  for (const auto& folder : {files, work, lower}) TRY(unfit_unless(mkdir(folder.c_str(), 0700) == 0, folder));
  TRY(unfit_unless(setxattr(files.c_str(), "user.tandem", "", 0, 0) == 0,
                   "attributes of files in memory, which Linux has from 6.6 on"));
  removexattr(files.c_str(), "user.tandem");
  TRY(unfit_unless(
      syscall(SYS_move_mount, parts.bound.get(), "", AT_FDCWD, lower.c_str(), MOVE_MOUNT_F_EMPTY_PATH) == 0,
      "binding the folder"));
  for (std::string_view left = hidden; !left.empty();) {
    const size_t end = left.find('\0');
    if (end == std::string_view::npos) break;
    TRY(hide(files, lower, left.substr(0, end)));
    left.remove_prefix(end + 1);
  }
  TRY(cover_all(files, lower));
  const std::pair<const char*, std::string> options[] = {
      {"lowerdir", lower}, {"upperdir", files}, {"workdir", work}, {"userxattr", ""}, {"xino", "on"}};
  auto made = detached_overlay(options);
  if (!made) return fail(Status::unfit(made.error().message()));
  // The overlay has mounts of its own of all three; nothing else may reach them.
  TRY(unfit_unless(umount2(lower.c_str(), MNT_DETACH) == 0 && umount2(place.c_str(), MNT_DETACH) == 0, place));
  return made;
}

}  // namespace tandem::envs
