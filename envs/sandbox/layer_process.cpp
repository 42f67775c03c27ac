#include "envs/sandbox/layer_process.h"

#include <fcntl.h>
#include <linux/mount.h>
#include <sched.h>
#include <signal.h>
#include <sys/mount.h>
#include <sys/prctl.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/xattr.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstdlib>
#include <cstring>
#include <string>
#include <utility>
#include <vector>

#include "envs/sandbox/descriptors.h"
#include "envs/sandbox/fields.h"
#include "envs/sandbox/layers.h"
#include "envs/sandbox/overlay.h"
#include "envs/sandbox/request_kind.h"
#include "envs/sandbox/tmpfs_options.h"

namespace tandem::envs {

const char* const kLayerArgument = "--tandem-layers";

namespace {

constexpr size_t kLargest = 1024;  // bytes of a request
constexpr const char* kTrees[] = {"/workspace", "/tmp"};

// A layer is a folder by its number, with a file system for each tree: what a sandbox held that began empty, or, with
// kWritten in its name, what one wrote that began on layers. That is in kLayerProcessFiles there, beside what the
// kernel needs.
// With kBound in it a layer is of files of the machine, which take no memory.
constexpr const char *kWritten = "+", *kLayerProcessFiles = "/files", *kWork = "/work", *kBound = "/bound";

Status check(long result, const std::string& what) { return result < 0 ? Status::from_errno(what, errno) : Status(); }

FileDescriptor clone_of(const std::string& path) {
  return FileDescriptor(
      static_cast<int>(syscall(SYS_open_tree, AT_FDCWD, path.c_str(), OPEN_TREE_CLONE | OPEN_TREE_CLOEXEC)));
}

// A root that holds nothing yet, and may note what an overlay must.
Status move_out() {
  TRY(check(unshare(CLONE_NEWNS), "a namespace of mounts"));
  TRY(check(mount(nullptr, "/", nullptr, MS_REC | MS_PRIVATE, nullptr), "making mounts private"));
  TRY(check(mount("tandem", "/tmp", "tmpfs", MS_NOSUID | MS_NODEV | MS_NOEXEC, "mode=700"), "tmpfs for layers"));
  TRY(check(chdir("/tmp"), "/tmp"));
  TRY(check(syscall(SYS_pivot_root, ".", "."), "pivot_root"));
  TRY(check(umount2(".", MNT_DETACH), "letting go of the old root"));
  TRY(check(chdir("/"), "/"));
  return check(setxattr("/", "trusted.tandem", "", 0, 0), "attributes of root");
}

Status keep(const std::string& layer, bool is_bound, const std::vector<FileDescriptor>& trees) {
  if (trees.size() != std::size(kTrees)) return Status::corrupt("a layer has two trees");
  TRY(check(mkdir(layer.c_str(), 0700), layer));
  if (is_bound) TRY(check(mkdir((layer + kBound).c_str(), 0700), layer));
  for (size_t i = 0; i < trees.size(); ++i) {
    const auto place = layer + kTrees[i];
    TRY(check(mkdir(place.c_str(), 0700), place));
    TRY(check(syscall(SYS_move_mount, trees[i].get(), "", AT_FDCWD, place.c_str(), MOVE_MOUNT_F_EMPTY_PATH), place));
  }
  return {};
}

// As the root of the tree below it, which the overlay's own hides.
Status look_like(const std::string& folder, const std::string& below) {
  struct stat info {};
  TRY(check(stat(below.c_str(), &info), below));
  TRY(check(chown(folder.c_str(), info.st_uid, info.st_gid), folder));
  TRY(check(chmod(folder.c_str(), info.st_mode & 07777), folder));
  const timespec times[2] = {info.st_atim, info.st_mtim};
  return check(utimensat(AT_FDCWD, folder.c_str(), times, 0), folder);
}

// Attached nowhere. Folders of layers can be moved; numbers of files are unique in all of it, and its device is one.
Result<FileDescriptor> overlay(std::vector<std::pair<const char*, std::string>> options) {
  for (const auto& [key, value] : {std::pair{"redirect_dir", "on"}, {"metacopy", "off"}, {"xino", "on"}})
    options.emplace_back(key, value);
  return detached_overlay(options);
}

// One tree that begins on those below it, and what will be written there.
Status begin(const std::string& tree_of_layer, uint64_t bytes, const std::vector<std::string>& below,
             FileDescriptor& tree, FileDescriptor& written) {
  uint64_t taken = 0;
  std::string lower, top;
  for (const auto& kept : below) {
    const bool was_written = access((kept + kWritten).c_str(), F_OK) == 0;
    const auto place = was_written ? kept + kWritten : kept, files = was_written ? place + kLayerProcessFiles : place;
    if (top.empty()) top = files;
    lower += (lower.empty() ? "" : ":") + files;
    const bool is_bound = access((kept.substr(0, kept.rfind('/')) + kBound).c_str(), F_OK) == 0;
    if (!is_bound) taken += bytes_in(FileDescriptor(open(place.c_str(), O_PATH | O_CLOEXEC)));
  }
  if (taken >= bytes) return Status::exhausted("what a sandbox begins on takes all of its disk");
  const auto own = tree_of_layer + kWritten, files = own + kLayerProcessFiles, work = own + kWork;
  TRY(check(mkdir(own.c_str(), 0700), own));
  const auto size = "mode=700," + tmpfs_bounds(bytes - taken);
  TRY(check(mount("tandem", own.c_str(), "tmpfs", MS_NOSUID | MS_NODEV, size.c_str()), own));
  for (const auto& folder : {files, work}) TRY(check(mkdir(folder.c_str(), 0700), folder));
  TRY(look_like(files, top));
  tree = TRY(overlay({{"lowerdir", lower}, {"upperdir", files}, {"workdir", work}}));
  written = clone_of(own);
  return written ? Status() : Status::from_errno("a layer", errno);
}

void let_go(const std::string& layer) {
  for (const char* tree : kTrees) {
    for (const char* of : {"", kWritten}) {
      const auto place = layer + tree + of;
      umount2(place.c_str(), MNT_DETACH);
      rmdir(place.c_str());
    }
  }
  rmdir((layer + kBound).c_str());
  rmdir(layer.c_str());
}

// The trees of a sandbox, and then those that what it writes is in.
Result<std::vector<FileDescriptor>> begin_on(const std::string& layer, FieldReader& fields) {
  const uint64_t bytes = TRY(fields.number());
  std::vector<std::string> layers;
  while (!fields.rest().empty()) layers.push_back("/" + std::to_string(TRY(fields.number())));
  if (layers.empty() || layers.size() > kMostLayers) return fail(Status::corrupt("a sandbox begins on 1 to 8 layers"));
  TRY(check(mkdir(layer.c_str(), 0700), layer));
  std::vector<FileDescriptor> trees(2 * std::size(kTrees));
  for (size_t i = 0; i < std::size(kTrees); ++i) {
    auto below = layers;
    for (auto& place : below) place += kTrees[i];
    TRY(begin(layer + kTrees[i], bytes, below, trees[i], trees[i + std::size(kTrees)]));
  }
  return trees;
}

// Where nobody listens any more for what began, it is let go of next.
void answer_with(int socket, const Result<std::vector<FileDescriptor>>& trees) {
  std::vector<int> descriptors;
  if (trees) {
    for (const auto& tree : *trees) descriptors.push_back(tree.get());
  }
  (void)send_descriptors(socket, trees ? kWorked : trees.error().message(), descriptors).ok();
}

// An error where it cannot be understood.
Status serve(int socket, const Received& request) {
  FieldReader fields(request.text);
  const auto kind = static_cast<LayerRequest>(TRY(fields.number()));
  const auto layer = "/" + std::to_string(TRY(fields.number()));
  switch (kind) {
    case LayerRequest::kKeep: {
      const bool is_bound = TRY(fields.number()) == 1;
      const Status kept = keep(layer, is_bound, request.descriptors);
      return send_descriptors(socket, kept ? kWorked : kept.message(), std::span<const int>());
    }
    case LayerRequest::kBegin:
      if (request.descriptors.size() == 1) answer_with(request.descriptors[0].get(), begin_on(layer, fields));
      return {};
    case LayerRequest::kLetGo:
      let_go(layer);
      return {};
  }
  return Status::corrupt("no request");
}

[[noreturn]] void hold_layers(int socket) {
  prctl(PR_SET_NAME, "tandem-layers");
  signal(SIGINT, SIG_IGN);  // a Ctrl-C is for who has started it, and closes the socket
  signal(SIGPIPE, SIG_IGN);
  umask(0);
  const Status ready = move_out();
  bool heard = send_descriptors(socket, ready ? kWorked : ready.message(), std::span<const int>()).ok() && ready;
  while (heard) {
    const auto request = receive(socket, kLargest);
    heard = !request.text.empty() && serve(socket, request).ok();
  }
  _exit(0);
}

// Runs before main of whatever program this is linked into, and only where that was started by LayerHolder::start.
__attribute__((constructor)) void layers_entry(int argc, char** argv) {
  if (argc != 4 || strcmp(argv[1], kLayerArgument) != 0) return;
  const int socket = atoi(argv[2]);
  struct stat info {};
  if (fstat(socket, &info) != 0 || !S_ISSOCK(info.st_mode)) return;
  syscall(SYS_close_range, static_cast<unsigned>(socket) + 1, ~0u, 0u);  // the program, where it came as a file
  hold_layers(socket);
}

}  // namespace
}  // namespace tandem::envs
