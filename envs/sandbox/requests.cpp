#include "envs/sandbox/requests.h"

#include <signal.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <cerrno>
#include <optional>

#include "envs/sandbox/descriptors.h"
#include "envs/sandbox/fields.h"
#include "envs/sandbox/frames.h"

namespace tandem::envs {
namespace {

constexpr double kCancelTime = 1;  // in which a cancellation can be sent, or the sandbox is not looking

}  // namespace

Result<std::string> Requests::request(RequestKind kind, std::string_view fields, double seconds,
                                      const std::stop_token& stop, int descriptor) {
  const Time deadline = SystemClock().now() + from_seconds(seconds);
  uint64_t id = 0;
  const auto cancel = [&] {
    std::lock_guard lock(mutex_);
    if (lost_) send(id, RequestKind::kCancel, "", SystemClock().now() + from_seconds(kCancelTime));
  };
  // Set up and taken down without the lock, which its own thread or another may need to run it.
  std::optional<std::stop_callback<decltype(cancel)>> on_stop;
  std::unique_lock lock(mutex_);
  if (!lost_) return fail(lost_);
  id = next_id_++;
  send(id, kind, fields, deadline);
  if (descriptor >= 0 && lost_) {
    if (auto status = send_descriptors(spawned_.socket.get(), "d", {descriptor}); !status) (void)lose(status).ok();
  }
  lock.unlock();
  on_stop.emplace(stop, cancel);
  lock.lock();
  for (;;) {
    if (auto reply = replies_.extract(id)) return std::move(reply.mapped());
    if (!lost_) return fail(lost_);
    if (reading_) {
      changed_.wait_until(lock, deadline);
      if (SystemClock().now() < deadline) continue;
      return fail(lose(Status::deadline("the sandbox did not answer in time")));
    }
    reading_ = true;
    lock.unlock();
    auto received = receive_frame(spawned_.socket.get(), deadline);
    lock.lock();
    reading_ = false;
    changed_.notify_all();
    if (!received) return fail(lose(std::move(received).error()));
    FieldReader reader(*received);
    const uint64_t of = TRY(reader.number());
    replies_[of] = received->substr(sizeof of);
  }
}

// With the lock held. The sandbox is lost where that cannot be done.
void Requests::send(uint64_t id, RequestKind kind, std::string_view fields, Time deadline) {
  std::string frame;
  put_number(frame, id);
  put_number(frame, static_cast<uint64_t>(kind));
  frame.append(fields);
  if (auto status = send_frame(spawned_.socket.get(), frame, deadline); !status) (void)lose(std::move(status)).ok();
}

// Every later call fails in the same way.
Status Requests::lose(Status why) {
  if (lost_) {
    std::lock_guard lock(why_mutex_);
    lost_ = why_ended_.empty() ? std::move(why) : Status::unavailable(why_ended_);
  }
  kill_all();
  changed_.notify_all();
  return lost_;
}

// Without the lock: whoever holds it may be waiting for this sandbox.
void Requests::end(std::string_view why) {
  {
    std::lock_guard lock(why_mutex_);
    if (why_ended_.empty()) why_ended_ = why;
  }
  kill_all();
}

// A process of somebody else's (an engine's, asked by an ordinary user) ends when its socket does.
void Requests::kill_all() {
  if (!spawned_.process) return;
  if (syscall(SYS_pidfd_send_signal, spawned_.process.get(), SIGKILL, nullptr, 0) != 0 && errno == EPERM)
    shutdown(spawned_.socket.get(), SHUT_RDWR);
}

}  // namespace tandem::envs
