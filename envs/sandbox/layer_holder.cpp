#include "envs/sandbox/layer_holder.h"

#include <poll.h>
#include <signal.h>
#include <sys/socket.h>
#include <sys/wait.h>

#include <cerrno>

#include "envs/sandbox/fields.h"
#include "envs/sandbox/layer_process.h"
#include "envs/sandbox/program_process.h"
#include "envs/sandbox/request_kind.h"

namespace tandem::envs {
namespace {

constexpr int kLongest = 20'000;  // milliseconds for an answer

std::string request_of(LayerRequest kind) {
  std::string bytes;
  put_number(bytes, static_cast<uint64_t>(kind));
  return bytes;
}

// Its answer. What is not kWorked says what went wrong.
Result<Received> answer_of(int socket) {
  pollfd wait = {socket, POLLIN, 0};
  if (poll(&wait, 1, kLongest) <= 0) return fail(Status::deadline("what holds the files of sandboxes does not answer"));
  auto answer = receive(socket, 1024);
  if (answer.text.empty()) return fail(Status::unavailable("what holds the files of sandboxes is gone"));
  return answer;
}

}  // namespace

FileLayer::~FileLayer() { holder_->let_go(number_); }

Result<std::shared_ptr<LayerHolder>> LayerHolder::start(const std::string& label) {
  auto started = TRY(start_program("tandem-layers", kLayerArgument, label));
  std::shared_ptr<LayerHolder> holder(new LayerHolder(std::move(started.socket), started.process));
  const auto answer = TRY(answer_of(holder->socket_.get()));
  if (answer.text != kWorked) return fail(Status::unfit("files of sandboxes cannot be shared here: " + answer.text));
  return holder;
}

LayerHolder::~LayerHolder() {
  socket_.reset();
  while (waitpid(process_, nullptr, 0) < 0 && errno == EINTR) {
  }
}

// With the lock held.
Status LayerHolder::tell(const std::string& request, std::span<const int> descriptors) {
  if (lost_) return Status::unavailable("what holds the files of sandboxes is gone");
  const Status sent = send_descriptors(socket_.get(), request, descriptors);
  return sent ? sent : lose(sent);
}

Status LayerHolder::ask(const std::string& request, std::span<const int> descriptors) {
  std::lock_guard lock(mutex_);
  TRY(tell(request, descriptors));
  const auto answer = answer_of(socket_.get());
  if (!answer) return lose(answer.error());
  return answer->text == kWorked ? Status() : Status::unavailable("files of a sandbox: " + answer->text);
}

Status LayerHolder::lose(const Status& why) {
  lost_ = true;
  kill(process_, SIGKILL);
  return Status::unavailable(why.message());
}

uint64_t LayerHolder::next_number() {
  std::lock_guard lock(mutex_);
  return next_++;
}

Result<std::shared_ptr<const FileLayer>> LayerHolder::bind(FileTrees trees) {
  const auto layer = TRY(keep(std::move(trees), true));
  // Whether overlays can be made of it shows the first one, which nobody uses.
  int ends[2];
  if (socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, ends) != 0)
    return fail(Status::from_errno("socketpair", errno));
  const FileDescriptor ours(ends[0]), theirs(ends[1]);
  const auto tried = TRY(begin_on({.all = {layer}}, uint64_t{1} << 20, theirs));
  const auto answer = TRY(answer_of(ours.get()));
  if (answer.text != kWorked) return fail(Status::unfit("no overlay can be mounted over it: " + answer.text));
  return layer;
}

Result<std::shared_ptr<const FileLayer>> LayerHolder::keep(FileTrees trees, bool is_bound) {
  const uint64_t number = next_number();
  auto request = request_of(LayerRequest::kKeep);
  put_number(request, number);
  put_number(request, is_bound ? 1 : 0);
  const int descriptors[] = {trees.workspace.get(), trees.temporary.get()};
  // From here on it is let go of, also where only one of them was kept.
  const auto layer = std::make_shared<FileLayer>(shared_from_this(), number, is_bound);
  TRY(ask(request, descriptors));
  layer->is_in(std::move(trees));
  return layer;
}

Result<std::shared_ptr<FileLayer>> LayerHolder::begin_on(const FileLayers& layers, uint64_t disk_bytes,
                                                         const FileDescriptor& socket) {
  const uint64_t number = next_number();
  auto request = request_of(LayerRequest::kBegin);
  put_number(request, number);
  put_number(request, disk_bytes);
  for (const auto& layer : layers.all) {
    if (&layer->holder() != this) return fail(Status::unavailable("files of a sandbox were lost with what held them"));
    put_number(request, layer->number());
  }
  auto layer = std::make_shared<FileLayer>(shared_from_this(), number);
  const int descriptors[] = {socket.get()};
  std::lock_guard lock(mutex_);
  TRY(tell(request, descriptors));
  return layer;
}

void LayerHolder::let_go(uint64_t number) {
  auto request = request_of(LayerRequest::kLetGo);
  put_number(request, number);
  std::lock_guard lock(mutex_);
  (void)tell(request, {}).ok();  // of one that is gone nothing is left
}

}  // namespace tandem::envs
