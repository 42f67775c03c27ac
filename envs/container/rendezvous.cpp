#include "envs/container/rendezvous.h"

#include <fcntl.h>
#include <poll.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/statvfs.h>
#include <unistd.h>

#include <cerrno>

#include "envs/sandbox/descriptors.h"
#include "envs/sandbox/owner.h"
#include "envs/sandbox/program.h"

namespace tandem::envs {
namespace {

constexpr int kExecMilliseconds = 200;

// The folder below which every process of this user has one of its own; nobody else can look into it.
Result<fs::path> private_folder() {
  std::error_code error;
  const auto temporary = fs::temp_directory_path(error);
  if (error) return fail(Status::unfit("there is no folder for temporary files").hint("set TMPDIR"));
  const auto folder = temporary / ("tandem-" + std::to_string(geteuid()));
  TRY(make_private_folder(folder));
  struct statvfs system {};
  if (statvfs(folder.c_str(), &system) == 0 && (system.f_flag & ST_NOEXEC) != 0)
    return fail(Status::unfit("programs below " + temporary.string() + " cannot be run").hint("set TMPDIR"));
  return folder;
}

void sweep(const fs::path& folder) {
  std::error_code error;
  for (const auto& entry : fs::directory_iterator(folder, error)) {
    if (owner_is_gone(entry.path().filename().string())) fs::remove_all(entry.path(), error);
  }
}

Status write_program(const fs::path& path) {
  FileDescriptor file(::open(path.c_str(), O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0555));
  if (!file) return Status::from_errno(path.string(), errno);
  TRY(write_all(file.get(), sandbox_program(), path.string()));
  return fchmod(file.get(), 0555) == 0 ? Status() : Status::from_errno(path.string(), errno);
}

}  // namespace

Rendezvous::~Rendezvous() {
  std::error_code error;
  if (!folder_.empty()) fs::remove_all(folder_, error);
}

Result<FileDescriptor> Rendezvous::admit(pid_t process, Duration limit, const std::function<Status()>& check) {
  const SystemClock clock;
  const Time deadline = clock.now() + limit;
  FileDescriptor connected;
  while (!connected) {
    pollfd wait = {listener_.get(), POLLIN, 0};
    if (poll(&wait, 1, kExecMilliseconds) > 0) {
      FileDescriptor candidate(accept4(listener_.get(), nullptr, nullptr, SOCK_CLOEXEC));
      ucred peer{};
      socklen_t size = sizeof peer;
      if (!candidate || getsockopt(candidate.get(), SOL_SOCKET, SO_PEERCRED, &peer, &size) != 0) continue;
      if (peer.pid == 0)
        return fail(Status::unfit("the container engine has its processes where this process cannot see them")
                        .hint("tandem and the engine must share a namespace of processes"));
      if (peer.pid == process) connected = std::move(candidate);
      continue;
    }
    TRY(check());
    if (clock.now() > deadline) return fail(Status::deadline("the first process of a container did not come"));
  }
  listener_.reset();
  unlink((folder_ / "socket").c_str());
  return connected;
}

Result<std::unique_ptr<RendezvousFolder>> RendezvousFolder::make() {
  if (sandbox_program().empty())
    return fail(Status::unfit("this build carries no program for containers")
                    .hint("build it with static libraries of libseccomp and libxxhash, and without sanitizers"));
  const auto all = TRY(private_folder());
  sweep(all);
  const auto own = all / this_owner();
  TRY(make_directories(own));
  auto folder = (own / "XXXXXX").string();
  if (!mkdtemp(folder.data())) return fail(Status::from_errno(folder, errno));
  std::unique_ptr<RendezvousFolder> folder_of_all(new RendezvousFolder(folder));
  TRY(write_program(folder_of_all->folder_ / "program"));
  return folder_of_all;
}

RendezvousFolder::~RendezvousFolder() {
  std::error_code error;
  fs::remove_all(folder_, error);
  fs::remove(folder_.parent_path(), error);  // where it is the last one of this process
}

Result<Rendezvous> RendezvousFolder::open() {
  const auto folder = folder_ / std::to_string(next_++);
  TRY(make_directories(folder));
  Rendezvous rendezvous(folder, FileDescriptor());
  if (chmod(folder.c_str(), 0755) != 0) return fail(Status::from_errno(folder.string(), errno));
  std::error_code error;
  fs::create_hard_link(folder_ / "program", folder / "program", error);
  if (error) return fail(Status(Code::kUnavailable, folder.string() + ": " + error.message()));
  rendezvous.listener_ = TRY(listen_at((folder / "socket").string()));
  return rendezvous;
}

}  // namespace tandem::envs
