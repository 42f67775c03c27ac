#include "envs/sandbox/spawner.h"

#include <poll.h>
#include <signal.h>
#include <sys/wait.h>

#include <cerrno>

#include "envs/sandbox/descriptors.h"
#include "envs/sandbox/program_process.h"
#include "envs/sandbox/spawner_process.h"
#include "envs/sandbox/spec_message.h"

namespace tandem::envs {
namespace {

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
  if (received.cut)
    return fail(Status::unfit("this process may open no more files, and each sandbox takes three")
                    .hint("raise the limit (`ulimit -n`) or make fewer sandboxes at once"));
  if (answer == expected) return std::move(received.descriptors);
  // The first letter is the code of the error.
  const auto code = static_cast<Code>(answer[0] - 'A');
  return fail(Status(code, "no sandbox can be made here: " + std::string(answer.substr(1)))
                  .hint("`tandem doctor` says what is missing"));
}

}  // namespace

Result<std::unique_ptr<Spawner>> Spawner::start(IsolatedBy by, std::string label) {
  auto started = TRY(start_program(
      "tandem-spawner", by == IsolatedBy::kBubblewrap ? kBubblewrapSpawnerArgument : kSpawnerArgument, label));
  std::unique_ptr<Spawner> spawner(new Spawner(std::move(started.socket), started.process));
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

Result<SpawnedSandbox> Spawner::spawn(const SandboxSpec& spec, const FileDescriptor& trees) {
  const auto request = encode(spec);
  if (request.size() > kLargestRequest)
    return fail(Status::invalid("the links of a sandbox take more than " + std::to_string(kLargestRequest) + " bytes"));
  std::lock_guard lock(mutex_);
  if (lost_) return fail(Status::unavailable("the sandbox spawner is gone"));
  const Status sent = send_descriptors(socket_.get(), request, {trees.get()});
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
