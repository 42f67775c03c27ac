// The rendezvous of a container and this process: a read-only folder in the container with the sandbox program and a
// socket.
//
// Once the program has connected the socket is gone: what a model finds in that folder is the program, and a folder
// that nobody listens in. Folders lie below one of this process that nobody else can open; those of processes that were
// killed are removed by the next one.
#pragma once

#include <sys/types.h>

#include <atomic>
#include <functional>
#include <string>

#include "base/clock.h"
#include "base/file.h"
#include "base/status.h"

namespace tandem::envs {

class Rendezvous {
 public:
  ~Rendezvous();
  Rendezvous(Rendezvous&&) = default;
  Rendezvous& operator=(Rendezvous&&) = delete;

  const fs::path& folder() const { return folder_; }  // to be mounted at kInside

  static constexpr const char* kInside = "/.tandem";
  static constexpr const char* kProgram = "/.tandem/program";
  static constexpr const char* kSocket = "/.tandem/socket";

  // The connection of the process with this number, and no other's. `check` is asked several times a second while
  // nobody comes, and ends the waiting with its error. Closes the rendezvous.
  Result<FileDescriptor> admit(pid_t process, Duration limit, const std::function<Status()>& check);

 private:
  friend class RendezvousFolder;
  Rendezvous(fs::path folder, FileDescriptor listener) : folder_(std::move(folder)), listener_(std::move(listener)) {}

  fs::path folder_;
  FileDescriptor listener_;
};

// Thread safety: open may be called from several threads.
class RendezvousFolder {
 public:
  // kUnfit where this build carries no program of sandboxes, or the folder for temporary files does not let any run.
  static Result<std::unique_ptr<RendezvousFolder>> make();
  ~RendezvousFolder();

  Result<Rendezvous> open();

 private:
  explicit RendezvousFolder(fs::path folder) : folder_(std::move(folder)) {}

  const fs::path folder_;
  std::atomic<uint64_t> next_{1};
};

}  // namespace tandem::envs
