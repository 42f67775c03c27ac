#include "collectives/mesh.h"

#include <fmt/format.h>
#include <poll.h>
#include <sys/socket.h>

#include <algorithm>
#include <cerrno>
#include <string_view>

namespace tandem::collectives {

namespace {

using Clock = std::chrono::steady_clock;

std::string_view name_of(Operation operation) {
  switch (operation) {
    case Operation::kMeet:
      return "meet";
    case Operation::kAllReduce:
      return "all_reduce";
    case Operation::kReduceScatter:
      return "reduce_scatter";
    case Operation::kAllGather:
      return "all_gather";
    case Operation::kBroadcast:
      return "broadcast";
    case Operation::kReducePieces:
      return "reduce_pieces";
    case Operation::kGatherPieces:
      return "gather_pieces";
  }
  return "an unknown operation";
}

}  // namespace

int milliseconds_until(Clock::time_point end) {
  const auto left = std::chrono::ceil<std::chrono::milliseconds>(end - Clock::now()).count();
  return static_cast<int>(std::clamp<int64_t>(left, 0, 60'000));
}

Status Mesh::begin(Operation operation, uint64_t total, std::chrono::milliseconds deadline) {
  if (!broken_.ok()) return broken_;
  end_ = Clock::now() + deadline;
  operation_ = operation;
  total_ = total;
  go_on();
  return {};
}

void Mesh::go_on() {
  ++number_;
  outgoing_.assign(peers_.size(), {});
  incoming_.assign(peers_.size(), {});
  arriving_.assign(peers_.size(), {});
}

void Mesh::send(int peer, const void* bytes, size_t size) {
  if (peer == rank_) return;
  outgoing_[peer] = {header(size), static_cast<std::byte*>(const_cast<void*>(bytes)), 0, true};
}

void Mesh::receive(int peer, void* bytes, size_t size) {
  if (peer == rank_) return;
  incoming_[peer] = {header(size), static_cast<std::byte*>(bytes), 0, true};
}

Status Mesh::exchange() {
  for (;;) {
    std::vector<pollfd> waiting;
    std::vector<int> whose;
    for (int peer = 0; peer < ranks(); ++peer) {
      short events = 0;
      if (!outgoing_[peer].finished()) events |= POLLOUT;
      if (!incoming_[peer].finished()) events |= POLLIN;
      if (events == 0) continue;
      waiting.push_back({peers_[peer].get(), events, 0});
      whose.push_back(peer);
    }
    if (waiting.empty()) return {};
    const int ready = ::poll(waiting.data(), waiting.size(), milliseconds_until(end_));
    if (ready < 0 && errno != EINTR) return broken(Status::from_errno(name_of(operation_), errno));
    if (Clock::now() >= end_)
      return broken(
          Status::deadline(fmt::format("{}: rank {} has not answered in time", name_of(operation_), whose[0])));
    for (size_t i = 0; i < waiting.size(); ++i) {
      const short events = waiting[i].revents;
      if ((events & (POLLIN | POLLHUP | POLLERR)) != 0 && !incoming_[whose[i]].finished()) TRY(read(whose[i]));
      if ((events & (POLLOUT | POLLHUP | POLLERR)) != 0 && !outgoing_[whose[i]].finished()) TRY(write(whose[i]));
    }
  }
}

Status Mesh::read(int peer) {
  Transfer& transfer = incoming_[peer];
  const Header expected = transfer.header;
  while (!transfer.finished()) {
    // A header is read beside the one that is expected, and compared once it is whole.
    const bool in_header = transfer.done < sizeof(Header);
    auto [to, size] = transfer.next();
    if (in_header) to = reinterpret_cast<std::byte*>(&arriving_[peer]) + transfer.done;
    const ssize_t count = ::recv(peers_[peer].get(), to, size, 0);
    if (count == 0) return broken(gone(peer));
    if (count < 0 && (errno == EAGAIN || errno == EINTR)) return {};
    if (count < 0) return broken(gone(peer));
    transfer.done += count;
    if (in_header && transfer.done == sizeof(Header)) {
      if (arriving_[peer] != expected) return broken(differs(peer, arriving_[peer]));
    }
  }
  return {};
}

Status Mesh::write(int peer) {
  Transfer& transfer = outgoing_[peer];
  while (!transfer.finished()) {
    const auto [from, size] = transfer.next();
    const ssize_t count = ::send(peers_[peer].get(), from, size, MSG_NOSIGNAL);
    if (count < 0 && (errno == EAGAIN || errno == EINTR)) return {};
    if (count < 0) return broken(gone(peer));
    transfer.done += count;
  }
  return {};
}

Status Mesh::gone(int peer) const {
  return Status::unavailable(fmt::format("{}: rank {} is gone", name_of(operation_), peer));
}

Status Mesh::differs(int peer, const Header& other) const {
  if (other.magic != Header{}.magic)
    return Status::corrupt(fmt::format("{}: rank {} sent what is no message of a group", name_of(operation_), peer));
  if (other.operation != operation_)
    return Status::invalid(fmt::format("{}: rank {} is in {}", name_of(operation_), peer, name_of(other.operation)));
  return Status::invalid(
      fmt::format("{}: rank {} has other sizes: {} of {} bytes in call {}, where this one has {} in call {}",
                  name_of(operation_), peer, other.bytes, other.total, other.number, total_, number_));
}

Status Mesh::broken(Status status) {
  broken_ = status;
  for (FileDescriptor& peer : peers_) peer.reset();
  return status;
}

}  // namespace tandem::collectives
