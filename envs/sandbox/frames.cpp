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

void put_number(std::string& bytes, uint64_t number) {
  bytes.append(reinterpret_cast<const char*>(&number), sizeof number);
}

void put_text(std::string& bytes, std::string_view text) {
  put_number(bytes, text.size());
  bytes.append(text);
}

void put_seconds(std::string& bytes, double seconds) {
  const double bounded = seconds > 0 ? std::min(seconds, kLongestSeconds) : 0;
  put_number(bytes, static_cast<uint64_t>(std::llround(bounded * 1000)));
}

void put_files(std::string& bytes, const Files& files) {
  put_number(bytes, files.size());
  for (const auto& [path, content] : files) {
    put_text(bytes, path);
    put_text(bytes, content);
  }
}

void put_session(std::string& bytes, const Session& session) {
  put_text(bytes, session.shell.directory);
  put_number(bytes, session.shell.environment.size());
  for (const auto& setting : session.shell.environment) put_text(bytes, setting);
  put_number(bytes, session.todos.size());
  for (const auto& todo : session.todos) {
    for (const auto* text : {&todo.id, &todo.content, &todo.status}) put_text(bytes, *text);
  }
}

Result<uint64_t> FieldReader::number() {
  uint64_t number = 0;
  if (bytes_.size() < sizeof number) return fail(Status::corrupt("bytes end within a field"));
  memcpy(&number, bytes_.data(), sizeof number);
  bytes_.remove_prefix(sizeof number);
  return number;
}

Result<double> FieldReader::seconds() {
  const auto seconds = static_cast<double>(TRY(number())) / 1000;
  if (seconds > kLongestSeconds) return fail(Status::corrupt("a time is out of bounds"));
  return seconds;
}

Result<std::string> FieldReader::text() {
  const uint64_t size = TRY(number());
  if (size > bytes_.size()) return fail(Status::corrupt("bytes end within a field"));
  std::string text(bytes_.substr(0, size));
  bytes_.remove_prefix(size);
  return text;
}

Result<Files> FieldReader::files() {
  const uint64_t count = TRY(number());
  Files files;
  for (uint64_t i = 0; i < count; ++i) {
    auto path = TRY(text());
    files[std::move(path)] = TRY(text());
  }
  return files;
}

Result<Session> FieldReader::session() {
  Session session;
  session.shell.directory = TRY(text());
  for (uint64_t count = TRY(number()); count > 0; --count) session.shell.environment.push_back(TRY(text()));
  for (uint64_t count = TRY(number()); count > 0; --count) {
    Todo todo;
    for (auto* each : {&todo.id, &todo.content, &todo.status}) *each = TRY(text());
    session.todos.push_back(std::move(todo));
  }
  return session;
}

}  // namespace tandem::envs
