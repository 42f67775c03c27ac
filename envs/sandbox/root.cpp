// The sandbox's view of the file system, on a small read-only tmpfs that holds mounts.
#include <fcntl.h>
#include <linux/mount.h>
#include <poll.h>
#include <sched.h>
#include <sys/mount.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <utility>
#include <vector>

#include "base/file.h"
#include "envs/sandbox/confine.h"
#include "envs/sandbox/descriptors.h"
#include "envs/sandbox/file_tree.h"
#include "envs/sandbox/machine_files.h"
#include "envs/sandbox/overlay.h"
#include "envs/sandbox/request_kind.h"
#include "envs/sandbox/root_contents.h"
#include "envs/sandbox/tmpfs_options.h"

namespace tandem::envs {
namespace {

Status root_check(long result, const std::string& what) {
  return result < 0 ? Status::from_errno(what, errno) : Status();
}

// A detached copy of what is mounted at `path`, to be attached wherever; -1 where it cannot be had.
FileDescriptor clone_tree(const std::string& path, unsigned recursive = AT_RECURSIVE) {
  return FileDescriptor(static_cast<int>(
      syscall(SYS_open_tree, AT_FDCWD, path.c_str(), OPEN_TREE_CLONE | OPEN_TREE_CLOEXEC | recursive)));
}

Status restrict_tree(int fd, const char* path, uint64_t attributes, unsigned flags) {
  mount_attr attr{};
  attr.attr_set = attributes;
  return root_check(syscall(SYS_mount_setattr, fd, path, flags, &attr, sizeof attr), "mount_setattr");
}

Status attach(const FileDescriptor& tree, const std::string& target) {
  return root_check(syscall(SYS_move_mount, tree.get(), "", AT_FDCWD, target.c_str(), MOVE_MOUNT_F_EMPTY_PATH),
                    "mounting " + target);
}

// `source` of the host, read-only, at the same place below the new root. Sources that are not there are left out.
Status show(const std::string& source, const std::string& target) {
  struct stat info {};
  if (lstat(source.c_str(), &info) != 0) return {};
  if (S_ISLNK(info.st_mode)) {
    std::error_code error;
    const auto to = fs::read_symlink(source, error);
    return root_check(symlink(to.c_str(), target.c_str()), target);
  }
  const auto tree = clone_tree(source);
  if (!tree) return Status::from_errno(source, errno);
  TRY(restrict_tree(tree.get(), "", MOUNT_ATTR_RDONLY | MOUNT_ATTR_NOSUID | MOUNT_ATTR_NODEV,
                    AT_EMPTY_PATH | AT_RECURSIVE));
  if (S_ISDIR(info.st_mode)) {
    TRY(root_check(mkdir(target.c_str(), 0755), target));
  } else {
    TRY(root_check(mknod(target.c_str(), S_IFREG | 0644, 0), target));
  }
  return attach(tree, target);
}

Status write_text(const std::string& path, std::string_view text) {
  FileDescriptor file(open(path.c_str(), O_WRONLY | O_CREAT | O_CLOEXEC, 0644));
  if (!file) return Status::from_errno(path, errno);
  return write_all(file.get(), text, path);
}

Status folder(const std::string& path) { return root_check(mkdir(path.c_str(), 0755), path); }

Status small_tmpfs(const std::string& path, uint64_t bytes, const char* mode) {
  const auto options = tmpfs_bounds(bytes) + ",mode=" + mode;
  return root_check(mount("tandem", path.c_str(), "tmpfs", MS_NOSUID | MS_NODEV, options.c_str()), "tmpfs at " + path);
}

Status build_devices(const std::string& dev) {
  TRY(folder(dev));
  TRY(root_check(mount("tandem", dev.c_str(), "tmpfs", MS_NOSUID | MS_NOEXEC, "size=64k,mode=755"), dev));
  for (const char* name : kDevices) {
    const auto tree = clone_tree(std::string("/dev/") + name);
    const auto target = dev + "/" + name;
    if (!tree) return Status::from_errno(std::string("/dev/") + name, errno);
    TRY(root_check(mknod(target.c_str(), S_IFREG | 0666, 0), target));
    TRY(attach(tree, target));
  }
  for (const auto& [name, to] : kDeviceLinks) TRY(root_check(symlink(to, (dev + "/" + name).c_str()), name));
  TRY(folder(dev + "/pts"));
  return folder(dev + "/shm");
}

Status build_etc(const std::string& etc) {
  TRY(folder(etc));
  for (const auto& [name, text] : etc_files({})) TRY(write_text(etc + "/" + name, text));
  for (const auto& name : shown_of_etc()) {
    std::error_code error;
    if (!fs::exists("/etc/" + name, error)) continue;
    TRY(make_directories(fs::path(etc + "/" + name).parent_path()));
    TRY(show("/etc/" + name, etc + "/" + name));
  }
  return root_check(symlink("/proc/self/mounts", (etc + "/mtab").c_str()), "/etc/mtab");
}

// What lets a grader hear of tests: read-only, so that nothing that is tested can stand in for it.
Status build_report(const std::string& root) {
  for (const auto& [name, text] : report_files()) {
    const auto path = root + kReportFolder + "/" + name;
    TRY(make_directories(fs::path(path).parent_path()));
    TRY(write_text(path, text));
    if (name.starts_with("bin/")) TRY(root_check(chmod(path.c_str(), 0755), path));
  }
  const auto start = std::string(kReportFolder) + "/sitecustomize.py";
  for (const auto& place : python_starts()) {
    TRY(make_directories(fs::path(root + place).parent_path()));
    TRY(root_check(symlink(start.c_str(), (root + place).c_str()), place));
  }
  return {};
}

// Figures of the processors that /proc has not (lscpu).
Status build_sys(const std::string& root) {
  for (const auto& [path, text] : processor_files()) {
    TRY(make_directories(fs::path(root + path).parent_path()));
    TRY(write_text(root + path, text));
  }
  return {};
}

constexpr const char* kMachine = "/etc/machine";  // texts for /proc, and nothing, as a file and as a folder

// What all sandboxes have, on a small tmpfs, and the places for what each has of its own.
Status build_common(const std::string& root) {
  TRY(root_check(mount(nullptr, "/", nullptr, MS_REC | MS_PRIVATE, nullptr), "making mounts private"));
  TRY(root_check(mount("tandem", root.c_str(), "tmpfs", MS_NOSUID | MS_NODEV, "size=1m,mode=755"),
                 "tmpfs for the root"));
  for (const char* name : kShownFolders) TRY(show(name, root + name));
  TRY(build_etc(root + "/etc"));
  TRY(build_report(root));
  TRY(build_sys(root));
  TRY(build_devices(root + "/dev"));
  for (const char* name : {"/tmp", "/proc", "/workspace"}) TRY(folder(root + name));
  return folder(root + kMachine);  // for the texts of /proc
}

Status mount_at(const std::string& source, const std::string& target) {
  return root_check(mount(source.c_str(), target.c_str(), nullptr, MS_BIND, nullptr), "mounting " + target);
}

// Processes, and only ours; and what a program must know of its machine, by the sandbox's limits. Of the rest of /proc
// (sys, kcore, sysrq-trigger, keys, ...) names alone are there.
Status build_proc(const std::string& root, const SandboxSpec& spec) {
  const auto proc = root + "/proc";
  constexpr unsigned long kFlags = MS_NOSUID | MS_NODEV | MS_NOEXEC;
  if (mount("proc", proc.c_str(), "proc", kFlags, nullptr) != 0)
    return root_check(mount("proc", proc.c_str(), "proc", kFlags, "subset=pid"), "/proc");
  std::error_code error;
  std::vector<fs::directory_entry> others;
  for (const auto& entry : fs::directory_iterator(proc, error)) {
    if (!is_shown_of_proc(entry.path().filename().string())) others.push_back(entry);
  }
  if (error) return Status::from_errno(proc, error.value());
  const auto machine = root + kMachine, empty = machine + "/none", nothing = machine + "/nothing";
  TRY(root_check(mount("tandem", machine.c_str(), "tmpfs", kFlags, "size=256k,mode=755"), machine));
  const auto texts = machine_files(spec.memory_bytes);
  for (const auto& [name, text] : texts) TRY(write_text(machine + "/" + name, text));
  TRY(write_text(nothing, ""));
  TRY(folder(empty));
  TRY(root_check(mount(nullptr, machine.c_str(), nullptr, MS_REMOUNT | MS_BIND | MS_RDONLY | kFlags, nullptr),
                 machine));
  for (const auto& entry : others) {
    const auto name = entry.path().filename().string();
    const bool is_told = std::any_of(texts.begin(), texts.end(), [&](const auto& text) { return text.first == name; });
    TRY(mount_at(is_told ? machine + "/" + name : entry.is_directory(error) ? empty : nothing, entry.path()));
  }
  return {};
}

// Paths that lead elsewhere are mounts of what is there, so that nothing sees a link. What is in /tmp is kept apart in
// kPlaces.
Status build_links(const std::string& root, const SandboxSpec& spec) {
  constexpr std::string_view kSources = "/usr/src";  // of the host's, a place for projects in images
  bool covers_sources = false;
  for (const auto& [path, target] : spec.links) {
    if (path.starts_with(std::string(kSources) + "/") && !std::exchange(covers_sources, true))
      TRY(small_tmpfs(root + std::string(kSources), kSharedMemoryBytes, "755"));
    std::string source = root + target;
    if (target.starts_with("/tmp/")) {
      source = root + kPlaces + target.substr(4);
      TRY(make_directories(source));
    }
    TRY(make_directories(root + path));
    TRY(mount_at(source, root + path));
  }
  return {};
}

struct WorkTrees {
  FileTrees shown;    // where they are made already
  FileTrees written;  // what will be written there, where that is known and asked for
};

Result<WorkTrees> trees_from(const FileDescriptor& socket) {
  constexpr int kSeconds = 20;
  pollfd wait = {socket.get(), POLLIN, 0};
  if (poll(&wait, 1, kSeconds * 1000) <= 0) return fail(Status::deadline("the files to begin on did not come"));
  auto received = receive(socket.get(), 1024);
  auto& trees = received.descriptors;
  if (received.text != kWorked || trees.size() != 4)
    return fail(Status::unavailable("the files to begin on: " + received.text));
  return WorkTrees{{std::move(trees[0]), std::move(trees[1])}, {std::move(trees[2]), std::move(trees[3])}};
}

// Whatever is not there is made, empty.
Result<FileTrees> build_own(const std::string& root, const SandboxSpec& spec, FileDescriptor there, FolderParts below) {
  TRY(small_tmpfs(root + "/dev/shm", kSharedMemoryBytes, "1777"));
  TRY(root_check(mount("devpts", (root + "/dev/pts").c_str(), "devpts", MS_NOSUID | MS_NOEXEC,
                       "newinstance,ptmxmode=0666,mode=620"),
                 "/dev/pts"));
  TRY(build_proc(root, spec));
  WorkTrees trees;
  if (spec.workspace) {
    trees.shown.workspace = std::move(there);
  } else if (spec.below) {
    if (auto& made = below.trees; made.size() == 4) {
      trees = {{std::move(made[0]), std::move(made[1])}, {std::move(made[2]), std::move(made[3])}};
    } else {
      trees.shown.workspace = TRY(workspace_over(below, spec.disk_bytes, root + "/workspace"));
    }
  } else if (there) {
    trees = TRY(trees_from(there));
  }
  const auto place = [&](const std::string& path, const char* mode, const FileDescriptor& shown,
                         FileDescriptor& written) -> Status {
    if (shown) return attach(shown, path);
    TRY(small_tmpfs(path, spec.disk_bytes, mode));
    if (spec.sealable) written = clone_tree(path);
    return {};
  };
  TRY(place(root + "/tmp", "1777", trees.shown.temporary, trees.written.temporary));
  TRY(place(root + "/workspace", "755", trees.shown.workspace, trees.written.workspace));
  return std::move(trees.written);
}

Status enter(const std::string& root) {
  TRY(root_check(chdir(root.c_str()), root));
  TRY(root_check(syscall(SYS_pivot_root, ".", "."), "pivot_root"));
  TRY(root_check(umount2(".", MNT_DETACH), "letting go of the old root"));
  TRY(restrict_tree(AT_FDCWD, "/", MOUNT_ATTR_RDONLY, 0));
  TRY(restrict_tree(AT_FDCWD, "/dev", MOUNT_ATTR_RDONLY, 0));
  return root_check(chdir("/"), "/");
}

constexpr const char* kNewRoot = "/tmp";

}  // namespace

Result<FileDescriptor> bound_folder(const fs::path& path, BoundMounts mounts) {
  const bool with_mounts = mounts == BoundMounts::kYes;
  auto tree = clone_tree(path, with_mounts ? AT_RECURSIVE : 0);
  if (!tree) return fail(Status::from_errno(path.string(), errno));
  const uint64_t attributes = MOUNT_ATTR_NOSUID | MOUNT_ATTR_NODEV | (with_mounts ? 0 : MOUNT_ATTR_RDONLY);
  TRY(restrict_tree(tree.get(), "", attributes, AT_EMPTY_PATH | AT_RECURSIVE));
  return tree;
}

Result<FileDescriptor> empty_temporary(const User& user) {
  const auto failed = [] { return fail(Status::from_errno("a temporary folder", errno)); };
  const FileDescriptor context(static_cast<int>(syscall(SYS_fsopen, "tmpfs", FSOPEN_CLOEXEC)));
  if (!context) return failed();
  const auto owner = std::to_string(user.id), group = std::to_string(user.group);
  for (const auto& [key, value] :
       {std::pair<const char*, std::string>{"mode", "1777"}, {"uid", owner}, {"gid", group}}) {
    if (syscall(SYS_fsconfig, context.get(), FSCONFIG_SET_STRING, key, value.c_str(), 0) != 0) return failed();
  }
  if (syscall(SYS_fsconfig, context.get(), FSCONFIG_CMD_CREATE, nullptr, nullptr, 0) != 0) return failed();
  FileDescriptor made(
      static_cast<int>(syscall(SYS_fsmount, context.get(), FSMOUNT_CLOEXEC, MOUNT_ATTR_NOSUID | MOUNT_ATTR_NODEV)));
  if (!made) return failed();
  return made;
}

Status prepare_root() {
  (void)machine_files(0);  // read here once, not in every sandbox
  TRY(root_check(unshare(CLONE_NEWNS), "a namespace of mounts"));
  TRY(build_common(kNewRoot));
  // The kernel lets an ordinary user mount a /proc only where there is a whole one: it is what his covers.
  const FileDescriptor proc(
      static_cast<int>(syscall(SYS_open_tree, AT_FDCWD, "/proc", OPEN_TREE_CLONE | OPEN_TREE_CLOEXEC)));
  if (!proc) return Status::from_errno("/proc", errno);
  TRY(attach(proc, std::string(kNewRoot) + "/proc"));
  return enter(kNewRoot);
}

uint64_t state_of_system() {
  uint64_t state = 0;
  for (const auto& name : shown_of_etc()) {
    struct stat info {};
    if (stat(("/etc/" + name).c_str(), &info) != 0) continue;
    state = state * 31 + info.st_ino + static_cast<uint64_t>(info.st_dev) * 17;
  }
  return state;
}

Result<FileTrees> build_root(const SandboxSpec& spec, FileDescriptor there, bool is_prepared) {
  if (spec.workspace && !there) there = TRY(bound_folder(*spec.workspace));
  FolderParts below;
  if (spec.below) below = TRY(receive_folder_below(*spec.below, there));
  FileTrees written;
  if (is_prepared && spec.links.empty()) {
    written = TRY(build_own("", spec, std::move(there), std::move(below)));
  } else {
    const std::string root = kNewRoot;
    TRY(build_common(root));
    written = TRY(build_own(root, spec, std::move(there), std::move(below)));
    TRY(build_links(root, spec));
    TRY(enter(root));
  }
  TRY(root_check(chdir("/workspace"), "/workspace"));
  return written;
}

}  // namespace tandem::envs
