#include "envs/sandbox/spawner.h"

#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <spawn.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cerrno>

#include "envs/sandbox/descriptors.h"
#include "envs/sandbox/program/program.h"
#include "envs/sandbox/spawner_process.h"
#include "envs/sandbox/spec_message.h"

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

// One message of the spawner. An error means that there will be no other.
Result<Received> receive_answer(int socket) {
  pollfd wait = {socket, POLLIN, 0};
  if (poll(&wait, 1, 20'000) <= 0) return fail(Status::deadline("the sandbox spawner does not answer"));
  auto received = receive(socket, 1024);
  if (received.text.empty()) return fail(Status::unavailable("the sandbox spawner is gone"));
  return received;
}

// What came with the message; its error where the text is not the expected one.
Result<std::vector<FileDescriptor>> descriptors_of(Received received, std::string_view expected) {
  const std::string_view answer = received.text;
  if (answer == expected) return std::move(received.descriptors);
  // The first letter is the code of the error.
  const auto code = static_cast<Code>(answer[0] - 'A');
  return fail(Status(code, "no sandbox can be made here: " + std::string(answer.substr(1)))
                  .hint("`tandem doctor` says what is missing"));
}

}  // namespace

Result<std::unique_ptr<Spawner>> Spawner::start(IsolatedBy by, std::string label) {
  int ends[2];
  if (socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, ends) != 0)
    return fail(Status::from_errno("socketpair", errno));
  FileDescriptor ours(ends[0]), theirs(ends[1]);
  const FileDescriptor program = program_file();
  std::string name = "tandem-spawner",
              hidden = by == IsolatedBy::kBubblewrap ? kBubblewrapSpawnerArgument : kSpawnerArgument, number = "3";
  char* argv[] = {name.data(), hidden.data(), number.data(), label.data(), nullptr};
  pid_t process = -1;
  int error = ENOENT;
  // The spawner must not keep the host's descriptors: all but its socket are closed in it, and then the program that it
  // is. Where files in memory may not be run it is this program itself.
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
  if (error != 0) return fail(Status::from_errno("starting the sandbox spawner", error));
  theirs.reset();
  std::unique_ptr<Spawner> spawner(new Spawner(std::move(ours), process));
  TRY(descriptors_of(TRY(receive_answer(spawner->socket_.get())), "ready"));
  return spawner;
}

Spawner::~Spawner() { reap(); }

void Spawner::reap() {
  socket_.reset();
  if (process_ < 0) return;
  while (waitpid(process_, nullptr, 0) < 0 && errno == EINTR) {
  }
  process_ = -1;
}

Result<SpawnedSandbox> Spawner::spawn(const SandboxSpec& spec) {
  const auto request = encode(spec);
  if (request.size() > kLargestRequest)
    return fail(Status::invalid("the links of a sandbox take more than " + std::to_string(kLargestRequest) + " bytes"));
  std::lock_guard lock(mutex_);
  if (lost_) return fail(Status::unavailable("the sandbox spawner is gone"));
  const Status sent = send_descriptors(socket_.get(), request, {});
  auto answer = sent ? receive_answer(socket_.get()) : fail(sent);
  if (!answer) {
    // Gone before the next one starts, which sweeps what this one has left.
    lost_ = true;
    if (process_ > 0) kill(process_, SIGKILL);
    reap();
    return fail(std::move(answer).error());
  }
  auto descriptors = TRY(descriptors_of(std::move(*answer), "spawned"));
  if (descriptors.size() < 2) return fail(Status::internal("the sandbox spawner sent no descriptors"));
  descriptors.resize(3);
  return SpawnedSandbox{std::move(descriptors[0]), std::move(descriptors[1]), std::move(descriptors[2])};
}

}  // namespace tandem::envs
