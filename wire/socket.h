// Messages between the roles of a run, over ZeroMQ.
//
// A message is a Header frame and a Body frame (messages.capnp) and bulk frames. A listening socket (ROUTER, mandatory)
// talks to many peers by name, a connected one (DEALER) to one; sending never blocks: a full queue or an unknown peer
// is a Status. Everything that comes in is checked before it is read: frame counts and sizes, a digest of all frames,
// the protocol, the run. What fails is dropped and counted; it never reaches the caller.
//
// A connected socket keeps the name `sender` on the other side; a process that starts again takes its name over, and
// its new epoch tells the two apart.
//
// Between machines (tcp://) both ends share a Secret: messages are encrypted, peers without it are rejected. Without a
// Secret, tcp:// works on loopback only.
//
// Thread safety: none; a socket belongs to the thread that made it.
#pragma once

#include <capnp/message.h>

#include <cstddef>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>
#include <zmq.hpp>

#include "base/clock.h"
#include "base/status.h"
#include "wire/faults.h"
#include "wire/messages.capnp.h"
#include "wire/secret.h"

namespace tandem::wire {

constexpr uint16_t kProtocolVersion = 9;

// The run of a listening socket that serves every run.
constexpr uint64_t kEveryRun = 0;

struct Identity {
  std::string sender;  // unique in the run: "rollout-1"; unique among runs where the other side serves every run
  // Identifies this start of the process. For a role of a run it is a counter that grows with each start; for a process
  // outside of runs it is unique.
  uint64_t epoch = 0;
  uint64_t run = 0;
  // Whether messages of other protocol versions are delivered too, so that the version can be reported. Fields are only
  // ever added, so the common ones can be read.
  bool hears_other_protocols = false;
  std::shared_ptr<Faults> faults = {};  // of its messages, where somebody asks for some
};

// A message that is being written.
class Outgoing {
 public:
  // `run`: of the request that this answers; the socket's own where there is none.
  explicit Outgoing(uint64_t id = 0, std::optional<uint64_t> run = {}) : id_(id), run_(run) {}
  Body::Builder body() { return body_.getRoot<Body>(); }
  uint64_t id() const { return id_; }
  void add_bulk(std::span<const std::byte> bytes) { bulk_.emplace_back(bytes.data(), bytes.size()); }
  template <typename T>
  void add_bulk_of(std::span<const T> values) {
    add_bulk(std::as_bytes(values));
  }

 private:
  friend class Socket;
  uint64_t id_;
  std::optional<uint64_t> run_;
  capnp::MallocMessageBuilder body_;
  std::vector<zmq::message_t> bulk_;
};

// A message that has come in and passed the checks. Move-only; the readers live as long as it.
class Incoming {
 public:
  const std::string& sender() const { return sender_; }
  uint64_t epoch() const { return epoch_; }
  uint64_t id() const { return id_; }
  uint64_t run() const { return run_; }
  uint16_t protocol() const { return protocol_; }
  Body::Reader body() const;
  size_t bulk_count() const { return bulk_.size(); }
  std::span<const std::byte> bulk(size_t index) const;
  // The bulk frame as values; kCorrupt where its size is not `count` of them.
  template <typename T>
  Result<std::vector<T>> bulk_of(size_t index, size_t count) const {
    if (index >= bulk_.size() || bulk_[index].size() != count * sizeof(T)) {
      return fail(Status::corrupt("a bulk frame of " + sender_ + " is missing or has the wrong size"));
    }
    std::vector<T> values(count);
    if (count > 0) std::memcpy(values.data(), bulk_[index].data(), count * sizeof(T));
    return values;
  }

 private:
  friend class Socket;
  struct Storage;
  std::string sender_;
  uint64_t epoch_ = 0, id_ = 0, run_ = 0;
  uint16_t protocol_ = 0;
  std::shared_ptr<Storage> storage_;
  std::vector<zmq::message_t> bulk_;
};

class Socket {
 public:
  // `address` as wire/address.h has them; port * picks one. kInvalid for what is none, and for an address beyond this
  // machine without a secret, null.
  static Result<Socket> listen(zmq::context_t& context, const std::string& address, const Identity& identity,
                               const Secret* secret = nullptr);
  static Result<Socket> connect(zmq::context_t& context, const std::string& address, const Identity& identity,
                                const Secret* secret = nullptr);

  // Where a listening socket can be reached.
  const std::string& address() const { return address_; }

  // Sends to `peer`; a connected socket ignores it. kUnavailable where the peer is not connected, kExhausted where its
  // queue is full.
  Status send(const std::string& peer, Outgoing& message);

  // The next message; empty where none has arrived.
  std::optional<Incoming> receive();

  uint64_t refused() const { return refused_; }
  zmq::socket_t& handle() { return socket_; }

 private:
  Socket(zmq::socket_t socket, bool listening, Identity identity)
      : socket_(std::move(socket)), listening_(listening), identity_(std::move(identity)) {}
  std::optional<Incoming> read(std::vector<zmq::message_t> frames);
  Status send_frames(std::vector<zmq::message_t> frames, const std::string& peer);
  Status send_at_fault(MessageFault fault, std::vector<zmq::message_t> frames, const std::string& peer);
  void send_late();

  struct Late {
    Time due{};
    std::vector<zmq::message_t> frames;
    std::string peer;
  };
  std::vector<Late> late_;  // messages that are at fault
  zmq::socket_t socket_;
  bool listening_;
  Identity identity_;
  std::string address_;
  uint64_t refused_ = 0;
};

// Returns when one of the sockets has a message, when `wake` (a descriptor, if any) is readable, or after `timeout`.
// True where there is something.
bool wait(std::span<Socket* const> sockets, Duration timeout, int wake = -1);

// Writes the answer to a request that failed.
void write_failure(Body::Builder body, const Status& status);
Status read_failure(Failed::Reader failed);

}  // namespace tandem::wire
