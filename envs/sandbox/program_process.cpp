#include "envs/sandbox/program_process.h"

#include <fcntl.h>
#include <spawn.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <unistd.h>

#include <cerrno>

#include "envs/sandbox/program.h"

extern char** environ;

namespace tandem::envs {
namespace {

// The static program as a file that nobody can change; invalid where there is none, or the kernel has no such files.
FileDescriptor program_file() {
  const auto program = sandbox_program();
  if (program.empty()) return {};
  constexpr unsigned kExecutable = 0x10;  // MFD_EXEC of Linux 6.3
  constexpr unsigned kFlags = MFD_CLOEXEC | MFD_ALLOW_SEALING;
  FileDescriptor file(memfd_create("tandem-sandbox", kFlags | kExecutable));
  if (!file) file = FileDescriptor(memfd_create("tandem-sandbox", kFlags));
  if (!file || !write_all(file.get(), program, "sandbox program")) return {};
  if (fcntl(file.get(), F_ADD_SEALS, F_SEAL_WRITE | F_SEAL_GROW | F_SEAL_SHRINK | F_SEAL_SEAL) != 0) return {};
  return file;
}

}  // namespace

Result<StartedProgram> start_program(std::string name, std::string hidden, std::string label) {
  int ends[2];
  if (socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, ends) != 0)
    return fail(Status::from_errno("socketpair", errno));
  FileDescriptor ours(ends[0]), theirs(ends[1]);
  const FileDescriptor program = program_file();
  std::string number = "3";
  char* argv[] = {name.data(), hidden.data(), number.data(), label.data(), nullptr};
  pid_t process = -1;
  int error = ENOENT;
  // It must not keep our descriptors: all but its socket are closed in it, and then the program that it is. Where files
  // in memory may not be run it is this program itself.
  for (const bool own : {false, true}) {
    if (error == 0 || (!own && !program)) continue;
    posix_spawn_file_actions_t actions;
    posix_spawn_file_actions_init(&actions);
    // Neither may be overwritten by the other's new number.
    const int socket = fcntl(theirs.get(), F_DUPFD_CLOEXEC, 10),
              file = own ? -1 : fcntl(program.get(), F_DUPFD_CLOEXEC, 10);
    FileDescriptor high_socket(socket), high_file(file);
    posix_spawn_file_actions_adddup2(&actions, socket, 3);
    if (!own) posix_spawn_file_actions_adddup2(&actions, file, 4);
    posix_spawn_file_actions_addclosefrom_np(&actions, own ? 4 : 5);
    error = posix_spawn(&process, own ? "/proc/self/exe" : "/proc/self/fd/4", &actions, nullptr, argv, environ);
    posix_spawn_file_actions_destroy(&actions);
  }
  if (error != 0) return fail(Status::from_errno("starting " + name, error));
  // Who is asked for something and does not take it keeps nobody for longer.
  const timeval patience{20, 0};
  setsockopt(ours.get(), SOL_SOCKET, SO_SNDTIMEO, &patience, sizeof patience);
  return StartedProgram{std::move(ours), process};
}

}  // namespace tandem::envs
