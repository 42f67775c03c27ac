#include "envs/sandbox/frames.h"

#include <poll.h>
#include <sys/socket.h>

#include <algorithm>
#include <cerrno>
#include <cmath>
#include <cstring>

namespace tandem::envs {
namespace {

// Waits until the socket is ready for `events`.
Status wait_for(int socket, short events, Time deadline) {
  for (;;) {
    const double left = to_seconds(deadline - SystemClock().now());
    if (left <= 0) return Status::deadline("the sandbox did not answer in time");
    pollfd wait = {socket, events, 0};
    const int ready = poll(&wait, 1, static_cast<int>(std::ceil(std::min(left, 1e6) * 1000)));
    if (ready > 0) return {};
    if (ready < 0 && errno != EINTR) return Status::from_errno("poll", errno);
  }
}

Status receive_exactly(int socket, char* bytes, size_t size, Time deadline) {
  while (size > 0) {
    const ssize_t count = recv(socket, bytes, size, MSG_DONTWAIT);
    if (count == 0) return Status::unavailable("the sandbox is gone");
    if (count < 0) {
      if (errno == EAGAIN) {
        TRY(wait_for(socket, POLLIN, deadline));
      } else if (errno != EINTR) {
        return Status::unavailable("the sandbox is gone: " + std::string(strerror(errno)));
      }
      continue;
    }
    bytes += count;
    size -= static_cast<size_t>(count);
  }
  return {};
}

}  // namespace

Status send_frame(int socket, std::string_view bytes, Time deadline) {
  if (bytes.size() > kLargestFrame) return Status::invalid("a message to a sandbox is too large");
  const uint64_t size = bytes.size();
  std::string frame(reinterpret_cast<const char*>(&size), sizeof size);
  frame.append(bytes);
  std::string_view rest = frame;
  while (!rest.empty()) {
    const ssize_t count = send(socket, rest.data(), rest.size(), MSG_DONTWAIT | MSG_NOSIGNAL);
    if (count < 0) {
      if (errno == EAGAIN) {
        TRY(wait_for(socket, POLLOUT, deadline));
      } else if (errno != EINTR) {
        return Status::unavailable("the sandbox is gone: " + std::string(strerror(errno)));
      }
      continue;
    }
    rest.remove_prefix(static_cast<size_t>(count));
  }
  return {};
}

Result<std::string> receive_frame(int socket, Time deadline) {
  uint64_t size = 0;
  TRY(receive_exactly(socket, reinterpret_cast<char*>(&size), sizeof size, deadline));
  if (size > kLargestFrame) return fail(Status::corrupt("a message of a sandbox is too large"));
  std::string bytes(size, '\0');
  TRY(receive_exactly(socket, bytes.data(), bytes.size(), deadline));
  return bytes;
}

}  // namespace tandem::envs
