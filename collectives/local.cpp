#include "collectives/local.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <poll.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstdint>
#include <cstring>
#include <string_view>
#include <vector>

#include "base/file.h"
#include "collectives/slices.h"

namespace tandem::collectives {

namespace {

using Clock = std::chrono::steady_clock;

enum class Operation : uint32_t { kMeet = 1, kAllReduce, kReduceScatter, kAllGather, kBroadcast };
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
  }
  return "an unknown operation";
}

// What goes before the bytes of one rank for another.
struct Header {
  uint32_t magic = 0x54434f4c;
  Operation operation = Operation::kMeet;
  uint64_t number = 0;  // of the call, or of the rank that meets
  uint64_t bytes = 0;   // behind this header
  uint64_t total = 0;   // of the whole call, which all ranks must agree on; of a meeting, the ranks
  friend bool operator==(const Header&, const Header&) = default;
};

// One way between two ranks: a header, then bytes that lie elsewhere.
struct Transfer {
  Header header;
  std::byte* bytes = nullptr;  // of a sender, never written
  size_t done = 0;             // of both, header first
  bool active = false;

  size_t size() const { return sizeof header + header.bytes; }
  bool finished() const { return !active || done == size(); }
  // Where to go on, and how far that piece reaches.
  std::pair<std::byte*, size_t> next() {
    if (done < sizeof header) return {reinterpret_cast<std::byte*>(&header) + done, sizeof header - done};
    return {bytes + (done - sizeof header), size() - done};
  }
};

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

int milliseconds_until(Clock::time_point end) {
  const auto left = std::chrono::ceil<std::chrono::milliseconds>(end - Clock::now()).count();
  return static_cast<int>(std::clamp<int64_t>(left, 0, 60'000));
}

class LocalGroup final : public Group {
 public:
  LocalGroup(int rank, std::vector<FileDescriptor> peers) : rank_(rank), peers_(std::move(peers)) {}

  int rank() const override { return rank_; }
  int ranks() const override { return static_cast<int>(peers_.size()); }

  Status all_reduce(std::span<float> values, std::chrono::milliseconds deadline) override {
    return reduce_all(values, deadline);
  }
  Status all_reduce(std::span<bf16> values, std::chrono::milliseconds deadline) override {
    return reduce_all(values, deadline);
  }
  Status reduce_scatter(std::span<const float> values, std::span<float> part,
                        std::chrono::milliseconds deadline) override {
    return reduce_parts(values, part, deadline);
  }
  Status reduce_scatter(std::span<const bf16> values, std::span<bf16> part,
                        std::chrono::milliseconds deadline) override {
    return reduce_parts(values, part, deadline);
  }

  Status all_gather(std::span<const std::byte> part, std::span<std::byte> all,
                    std::chrono::milliseconds deadline) override {
    if (part.size() * ranks() != all.size())
      return Status::invalid(
          fmt::format("all_gather: {} bytes of each of {} ranks do not fill {}", part.size(), ranks(), all.size()));
    TRY(begin(Operation::kAllGather, all.size(), deadline));
    std::byte* mine = all.data() + part.size() * rank_;
    if (!part.empty() && mine != part.data()) std::memcpy(mine, part.data(), part.size());
    for (int peer = 0; peer < ranks(); ++peer) {
      send(peer, mine, part.size());
      receive(peer, all.data() + part.size() * peer, part.size());
    }
    return exchange();
  }

  Status broadcast(std::span<std::byte> bytes, int root, std::chrono::milliseconds deadline) override {
    if (root < 0 || root >= ranks())
      return Status::invalid(fmt::format("broadcast: rank {} is none of {}", root, ranks()));
    TRY(begin(Operation::kBroadcast, bytes.size() * kMostRanks + root, deadline));
    for (int peer = 0; peer < ranks(); ++peer) {
      if (rank_ == root) send(peer, bytes.data(), bytes.size());
      // The others answer with nothing, so that the root, too, learns who is in another call.
      if (rank_ == root) receive(peer, nullptr, 0);
      if (peer == root) receive(peer, bytes.data(), bytes.size());
      if (peer == root) send(peer, nullptr, 0);
    }
    return exchange();
  }

 private:
  template <typename T>
  Status reduce_all(std::span<T> values, std::chrono::milliseconds deadline) {
    TRY(begin(Operation::kAllReduce, values.size_bytes(), deadline));
    const Slices slices{values.size(), ranks()};
    const std::span<T> mine = values.subspan(slices.begin(rank_), slices.size(rank_));
    std::vector<T> sums(mine.size());
    TRY(gather_and_add<T>(values, slices, sums));
    TRY(begin(Operation::kAllReduce, values.size_bytes(), deadline, false));
    std::copy(sums.begin(), sums.end(), mine.begin());
    for (int peer = 0; peer < ranks(); ++peer) {
      send(peer, mine.data(), mine.size_bytes());
      receive(peer, values.data() + slices.begin(peer), slices.size(peer) * sizeof(T));
    }
    return exchange();
  }

  template <typename T>
  Status reduce_parts(std::span<const T> values, std::span<T> part, std::chrono::milliseconds deadline) {
    if (part.size() * ranks() != values.size())
      return Status::invalid(
          fmt::format("reduce_scatter: {} elements are no {} parts of {}", values.size(), ranks(), part.size()));
    TRY(begin(Operation::kReduceScatter, values.size_bytes(), deadline));
    return gather_and_add<T>(values, {values.size(), ranks()}, part);
  }

  // sums = this rank's slice of all ranks' values, added in the order of ranks.
  template <typename T>
  Status gather_and_add(std::span<const T> values, const Slices& slices, std::span<T> sums) {
    const size_t count = sums.size();
    std::vector<T> parts(count * ranks());
    std::copy_n(values.begin() + slices.begin(rank_), count, parts.begin() + count * rank_);
    for (int peer = 0; peer < ranks(); ++peer) {
      send(peer, values.data() + slices.begin(peer), slices.size(peer) * sizeof(T));
      receive(peer, parts.data() + count * peer, count * sizeof(T));
    }
    TRY(exchange());
    for (size_t i = 0; i < count; ++i) {
      float sum = element(parts[i]);
      for (int peer = 1; peer < ranks(); ++peer) sum += element(parts[count * peer + i]);
      set(sums[i], sum);
    }
    return {};
  }
  static float element(float value) { return value; }
  static float element(bf16 value) { return kernels::to_float(value); }
  static void set(float& target, float value) { target = value; }
  static void set(bf16& target, float value) { target = kernels::to_bf16(value); }

  // The next exchange; `anew` is false for the second one of a call.
  Status begin(Operation operation, uint64_t total, std::chrono::milliseconds deadline, bool anew = true) {
    if (!broken_.ok()) return broken_;
    if (anew) end_ = Clock::now() + deadline;
    operation_ = operation;
    total_ = total;
    ++number_;
    outgoing_.assign(peers_.size(), {});
    incoming_.assign(peers_.size(), {});
    return {};
  }
  Header header(uint64_t bytes) const {
    return {.operation = operation_, .number = number_, .bytes = bytes, .total = total_};
  }
  void send(int peer, const void* bytes, size_t size) {
    if (peer == rank_) return;
    outgoing_[peer] = {header(size), static_cast<std::byte*>(const_cast<void*>(bytes)), 0, true};
  }
  void receive(int peer, void* bytes, size_t size) {
    if (peer == rank_) return;
    incoming_[peer] = {header(size), static_cast<std::byte*>(bytes), 0, true};
  }

  // Moves everything that was begun, whoever is first.
  Status exchange() {
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
      if (ready == 0 && Clock::now() >= end_)
        return broken(
            Status::deadline(fmt::format("{}: rank {} has not answered in time", name_of(operation_), whose[0])));
      for (size_t i = 0; i < waiting.size(); ++i) {
        const short events = waiting[i].revents;
        if ((events & (POLLIN | POLLHUP | POLLERR)) != 0 && !incoming_[whose[i]].finished()) TRY(read(whose[i]));
        if ((events & (POLLOUT | POLLHUP | POLLERR)) != 0 && !outgoing_[whose[i]].finished()) TRY(write(whose[i]));
      }
    }
  }

  Status read(int peer) {
    Transfer& transfer = incoming_[peer];
    const Header expected = transfer.header;
    while (!transfer.finished()) {
      // A header is read beside the one that is expected, and compared once it is whole.
      const bool in_header = transfer.done < sizeof(Header);
      auto [to, size] = transfer.next();
      if (in_header) to = reinterpret_cast<std::byte*>(&arriving(peer)) + transfer.done;
      const ssize_t count = ::recv(peers_[peer].get(), to, size, 0);
      if (count == 0) return broken(gone(peer));
      if (count < 0 && (errno == EAGAIN || errno == EINTR)) return {};
      if (count < 0) return broken(gone(peer));
      transfer.done += count;
      if (in_header && transfer.done == sizeof(Header)) {
        if (arriving(peer) != expected) return broken(differs(peer, arriving(peer)));
      }
    }
    return {};
  }
  Status write(int peer) {
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
  Header& arriving(int peer) {
    arriving_.resize(peers_.size());
    return arriving_[peer];
  }

  Status gone(int peer) const {
    return Status::unavailable(fmt::format("{}: rank {} is gone", name_of(operation_), peer));
  }
  Status differs(int peer, const Header& other) const {
    if (other.magic != Header{}.magic)
      return Status::corrupt(fmt::format("{}: rank {} sent what is no message of a group", name_of(operation_), peer));
    if (other.operation != operation_)
      return Status::invalid(fmt::format("{}: rank {} is in {}", name_of(operation_), peer, name_of(other.operation)));
    return Status::invalid(
        fmt::format("{}: rank {} has other sizes: {} of {} bytes in call {}, where this one has {} in call {}",
                    name_of(operation_), peer, other.bytes, other.total, other.number, total_, number_));
  }
  Status broken(Status status) {
    broken_ = status;
    for (FileDescriptor& peer : peers_) peer.reset();
    return status;
  }

  const int rank_;
  std::vector<FileDescriptor> peers_;  // this rank's own is none
  Status broken_;
  Operation operation_ = Operation::kMeet;
  uint64_t total_ = 0, number_ = 0;
  Clock::time_point end_;
  std::vector<Transfer> outgoing_, incoming_;
  std::vector<Header> arriving_;
};

// All of a small message, in time.
template <bool Sending>
Status move_all(int socket, void* bytes, size_t size, Clock::time_point end, int peer) {
  for (size_t done = 0; done < size;) {
    pollfd waiting{socket, Sending ? POLLOUT : POLLIN, 0};
    const int ready = ::poll(&waiting, 1, milliseconds_until(end));
    if (ready == 0 && Clock::now() >= end)
      return Status::deadline(fmt::format("meet: rank {} has not answered in time", peer));
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
    return Status::invalid(fmt::format("meet: what called rank {} is no other rank of a group of {}", s.rank, s.ranks));
  if (peers[hello.number]) return Status::exists(fmt::format("meet: rank {} has called twice", hello.number));
  peers[hello.number] = std::move(socket);
  return {};
}

}  // namespace

Result<std::unique_ptr<Group>> meet_locally(const LocalSettings& s) {
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
  auto group = std::make_unique<LocalGroup>(s.rank, std::move(peers));
  // Nobody goes on, and takes its socket away, before all have met.
  TRY(group->all_gather(
      {}, {}, std::chrono::ceil<std::chrono::milliseconds>(std::max(end - Clock::now(), Clock::duration(0)))));
  return group;
}

}  // namespace tandem::collectives
