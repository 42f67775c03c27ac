#include "envs/sandbox/first_process.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cstdlib>
#include <utility>

#include "envs/sandbox/confine.h"
#include "envs/sandbox/descriptors.h"
#include "envs/sandbox/frames.h"
#include "envs/sandbox/init.h"
#include "envs/sandbox/root_contents.h"

namespace tandem::envs {
namespace {

Time soon() { return SystemClock().now() + std::chrono::seconds(20); }

Status close_standard_streams() {
  const FileDescriptor null(open("/dev/null", O_RDWR | O_CLOEXEC));
  if (!null) return Status::from_errno("/dev/null", errno);
  for (const int stream : {0, 1, 2}) dup2(null.get(), stream);
  return {};
}

// Links to folders that are not there yet; where mounts stand in for them they are.
Status make_places(const Links& links) {
  for (const auto& [path, target] : links) {
    std::error_code error;
    if (fs::is_symlink(fs::symlink_status(path, error))) TRY(make_directories(target));
  }
  return {};
}

Status write_home(const Files& home) {
  for (const auto& [name, text] : home) {
    const fs::path path = fs::path(kHome) / name;
    TRY(make_directories(path.parent_path()));
    TRY(write_file(path, text));
  }
  return {};
}

}  // namespace

void confine_and_serve(int socket, const std::function<Result<FirstProcess>()>& begin) {
  FirstProcess self;
  FileDescriptor listener;
  const auto set_up = [&]() -> Status {
    umask(022);
    setsid();
    // Where it is not, the rest of a sandbox would neither end with it nor be kept from signalling it.
    if (getpid() != 1) return Status::unfit("a sandbox needs a namespace of processes of its own");
    self = TRY(begin());
    TRY(close_standard_streams());
    TRY(raise_loopback());
    if (self.spec.has_proxy()) listener = TRY(listen_for_proxy());
    TRY(set_limits(self.spec));
    TRY(make_places(self.spec.links));
    TRY(drop_privileges(self.filter, self.spec.links));
    return write_home(self.spec.home);
  };
  const Status status = set_up();
  if (!send_frame(socket, status ? "ready" : status.message(), soon()) || !status) _exit(1);
  if (self.spec.sealable) {
    const auto own = std::exchange(self.own, {});
    if (!send_descriptors(socket, own.workspace ? "f" : "-", {own.workspace.get(), own.temporary.get()})) _exit(1);
  }
  if (listener && !send_descriptors(socket, "l", {listener.get()})) _exit(1);
  listener.reset();
  clearenv();
  auto settings = self.spec.environment;
  if (self.spec.has_proxy()) {
    const auto proxy = proxy_settings();
    settings.insert(settings.end(), proxy.begin(), proxy.end());
  }
  serve_sandbox(socket, {settings, self.spec.links, self.spec.has_proxy()});
}

}  // namespace tandem::envs
