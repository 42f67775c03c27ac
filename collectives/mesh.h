// Sockets between every two ranks of a group, over which one call at a time moves bytes: what each rank sends to each
// and wants from each is said first, then all of it is moved at once, whoever is ready first.
//
// What comes in is a header and then bytes; the header must be the one that this rank expects, or the call fails before
// any byte behind it is read. The first error is the last: all sockets are closed, and every later call returns it.
//
// Thread safety: none.
#pragma once

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <utility>
#include <vector>

#include "base/file.h"
#include "base/status.h"

namespace tandem::collectives {

enum class Operation : uint32_t {
  kMeet = 1,
  kAllReduce,
  kReduceScatter,
  kAllGather,
  kBroadcast,
  kReducePieces,
  kGatherPieces
};

// The header before the bytes of one rank for another.
struct Header {
  uint32_t magic = 0x54434f4c;
  Operation operation = Operation::kMeet;
  uint64_t number = 0;  // of the call, or of the rank that meets
  uint64_t bytes = 0;   // behind this header
  uint64_t total = 0;   // of the whole call, which all ranks must agree on; of a meeting, the ranks
  friend bool operator==(const Header&, const Header&) = default;
};

class Mesh {
 public:
  // `peers` has a socket to each other rank, which does not block; this rank's own is none.
  Mesh(int rank, std::vector<FileDescriptor> peers) : rank_(rank), peers_(std::move(peers)) {}
  int rank() const { return rank_; }
  int ranks() const { return static_cast<int>(peers_.size()); }

  // The next call of the group. `total` is what all ranks must agree on beside the operation.
  Status begin(Operation operation, uint64_t total, std::chrono::milliseconds deadline);
  // A second exchange within the same call.
  void go_on();
  // What goes to a rank, and what is wanted from it, until `exchange` returns; this rank itself is passed over.
  void send(int peer, const void* bytes, size_t size);
  void receive(int peer, void* bytes, size_t size);
  // kDeadline, kUnavailable, kInvalid and kCorrupt name a rank.
  Status exchange();

 private:
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

  Header header(uint64_t bytes) const {
    return {.operation = operation_, .number = number_, .bytes = bytes, .total = total_};
  }
  Status read(int peer);
  Status write(int peer);
  Status gone(int peer) const;
  Status differs(int peer, const Header& other) const;
  Status broken(Status status);

  int rank_;
  std::vector<FileDescriptor> peers_;
  Status broken_;
  Operation operation_ = Operation::kMeet;
  uint64_t total_ = 0, number_ = 0;
  std::chrono::steady_clock::time_point end_;
  std::vector<Transfer> outgoing_, incoming_;
  std::vector<Header> arriving_;  // as far as they have come
};

// Until then, for poll; at most a minute, and never below 0.
int milliseconds_until(std::chrono::steady_clock::time_point end);

}  // namespace tandem::collectives
