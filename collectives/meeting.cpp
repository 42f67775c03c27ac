#include "collectives/meeting.h"

#include <fmt/format.h>
#include <poll.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>

#include "collectives/group.h"
#include "collectives/mesh.h"

namespace tandem::collectives {

namespace {

using Clock = std::chrono::steady_clock;

Status check(const LocalSettings& s) {
  if (s.ranks < 1 || s.ranks > kMostRanks)
    return Status::invalid(fmt::format("a group of {} ranks: 1 to {} meet", s.ranks, kMostRanks));
  if (s.rank < 0 || s.rank >= s.ranks) return Status::invalid(fmt::format("rank {} of {} ranks", s.rank, s.ranks));
  if (s.folder.native().size() > 80)
    return Status::invalid(fmt::format("{}: a path of more than 80 bytes is too long for sockets", s.folder.string()));
  return {};
}

sockaddr_un address_of(const LocalSettings& s, int rank) {
  sockaddr_un address{};
  address.sun_family = AF_UNIX;
  const std::string path = (s.folder / fmt::format("rank-{}", rank)).string();
  std::memcpy(address.sun_path, path.data(), path.size());
  return address;
}

FileDescriptor new_socket() { return FileDescriptor(::socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0)); }

// All of a small message, in time.
template <bool Sending>
Status move_all(int socket, void* bytes, size_t size, Clock::time_point end, int peer) {
  for (size_t done = 0; done < size;) {
    pollfd waiting{socket, Sending ? POLLOUT : POLLIN, 0};
    const int ready = ::poll(&waiting, 1, milliseconds_until(end));
    if (Clock::now() >= end) return Status::deadline(fmt::format("meet: rank {} has not answered in time", peer));
    if (ready <= 0) continue;
    auto* at = static_cast<std::byte*>(bytes) + done;
    const ssize_t count = Sending ? ::send(socket, at, size - done, MSG_NOSIGNAL) : ::recv(socket, at, size - done, 0);
    if (count < 0 && (errno == EAGAIN || errno == EINTR)) continue;
    if (count <= 0) return Status::unavailable(fmt::format("meet: rank {} is gone", peer));
    done += count;
  }
  return {};
}

Header greeting(const LocalSettings& s) {
  return {.number = static_cast<uint64_t>(s.rank), .total = static_cast<uint64_t>(s.ranks)};
}

// Calls the rank until it listens.
Result<FileDescriptor> call(const LocalSettings& s, int peer, Clock::time_point end) {
  const sockaddr_un address = address_of(s, peer);
  for (;;) {
    FileDescriptor socket = new_socket();
    if (!socket) return fail(Status::from_errno("meet: socket", errno));
    if (::connect(socket.get(), reinterpret_cast<const sockaddr*>(&address), sizeof address) == 0) {
      Header hello = greeting(s);
      TRY(move_all<true>(socket.get(), &hello, sizeof hello, end, peer));
      return socket;
    }
    // Not there yet, not listening yet, or its queue is full.
    if (errno != ENOENT && errno != ECONNREFUSED && errno != EAGAIN)
      return fail(Status::from_errno(fmt::format("meet: rank {}", peer), errno));
    if (Clock::now() >= end) return fail(Status::deadline(fmt::format("meet: rank {} has not come", peer)));
    ::poll(nullptr, 0, std::min(5, milliseconds_until(end)));
  }
}

Status take_greeting(const LocalSettings& s, FileDescriptor socket, std::vector<FileDescriptor>& peers,
                     Clock::time_point end) {
  Header hello;
  TRY(move_all<false>(socket.get(), &hello, sizeof hello, end, s.rank + 1));
  Header expected = greeting(s);
  expected.number = hello.number;
  if (hello.number <= static_cast<uint64_t>(s.rank) || hello.number >= peers.size() || hello != expected)
    return Status::corrupt(fmt::format("meet: what called rank {} is no other rank of a group of {}", s.rank, s.ranks));
  if (peers[hello.number]) return Status::exists(fmt::format("meet: rank {} has called twice", hello.number));
  peers[hello.number] = std::move(socket);
  return {};
}

}  // namespace

Result<std::vector<FileDescriptor>> find_ranks(const LocalSettings& s) {
  TRY(check(s));
  const auto end = Clock::now() + s.deadline;
  const sockaddr_un own = address_of(s, s.rank);
  FileDescriptor listener = new_socket();
  if (!listener) return fail(Status::from_errno("meet: socket", errno));
  if (::bind(listener.get(), reinterpret_cast<const sockaddr*>(&own), sizeof own) != 0) {
    const int error = errno;
    if (error != EADDRINUSE) return fail(Status::from_errno(own.sun_path, error));
    return fail(Status::exists(fmt::format("{}: another process is rank {} of this group", own.sun_path, s.rank))
                    .hint("a group has a folder of its own; remove what a group that has ended left there"));
  }
  struct Unlink {
    const char* path;
    ~Unlink() { ::unlink(path); }
  } unlink{own.sun_path};
  if (::listen(listener.get(), kMostRanks) != 0) return fail(Status::from_errno(own.sun_path, errno));

  std::vector<FileDescriptor> peers(s.ranks);
  for (int peer = 0; peer < s.rank; ++peer) peers[peer] = TRY(call(s, peer, end));
  for (int missing = s.ranks - s.rank - 1; missing > 0; --missing) {
    pollfd waiting{listener.get(), POLLIN, 0};
    while (::poll(&waiting, 1, milliseconds_until(end)) <= 0) {
      if (Clock::now() < end) continue;
      const auto absent = std::find_if(peers.begin() + s.rank + 1, peers.end(), [](const auto& peer) { return !peer; });
      return fail(Status::deadline(fmt::format("meet: rank {} has not come", absent - peers.begin())));
    }
    FileDescriptor socket(::accept4(listener.get(), nullptr, nullptr, SOCK_CLOEXEC | SOCK_NONBLOCK));
    if (!socket) return fail(Status::from_errno("meet: accept", errno));
    TRY(take_greeting(s, std::move(socket), peers, end));
  }
  return peers;
}

}  // namespace tandem::collectives
