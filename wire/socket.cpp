#include "wire/socket.h"

#include <capnp/dynamic.h>
#include <capnp/serialize.h>
#include <fmt/format.h>
#include <spdlog/spdlog.h>

#include <algorithm>
#include <array>
#include <bit>
#include <cstring>

#include "base/digest.h"
#include "wire/address.h"

namespace tandem::wire {

namespace {

constexpr size_t kMaxControlBytes = 8 << 20;  // of a header or body frame
constexpr size_t kMaxBulkBytes = 256 << 20;
constexpr size_t kMaxFrames = 16;
constexpr int kQueueMessages = 4096;
constexpr uint64_t kRefusalsTold = 20;  // each; of more, the 32nd, the 64th, ..

// Cap'n Proto reads words; a frame may lie anywhere.
kj::Array<capnp::word> aligned(const zmq::message_t& frame) {
  auto words = kj::heapArray<capnp::word>(frame.size() / sizeof(capnp::word));
  std::memcpy(words.begin(), frame.data(), words.size() * sizeof(capnp::word));
  return words;
}

// Getters count what they visit. A list of nothing claims to be as long as it likes, and visiting it counts as much:
// what takes more than one reading may is refused, and what is left has room for many readings.
constexpr size_t kReadOnce = 2, kReadOften = 64;
capnp::ReaderOptions limits(size_t words, size_t readings) {
  capnp::ReaderOptions options;
  options.traversalLimitInWords = (words + 128) * readings;
  options.nestingLimit = 16;
  return options;
}

// Reads all of it: a pointer that leads nowhere or a text without an end throws here, and not where a role looks.
void read_all(const capnp::DynamicValue::Reader& value) {
  switch (value.getType()) {
    case capnp::DynamicValue::TEXT:
      value.as<capnp::Text>();
      break;
    case capnp::DynamicValue::LIST:
      for (const auto item : value.as<capnp::DynamicList>()) read_all(item);
      break;
    case capnp::DynamicValue::STRUCT: {
      const auto fields = value.as<capnp::DynamicStruct>();
      for (const auto field : fields.getSchema().getNonUnionFields()) read_all(fields.get(field));
      KJ_IF_MAYBE (field, fields.which()) read_all(fields.get(*field));
      break;
    }
    default:
      break;  // numbers lie in their struct
  }
}

// A host that is switched off closes no connection.
constexpr int kHeartbeatMs = 2000, kHeartbeatTimeoutMs = 10'000;

// Keys and watchfulness of a socket between machines; nothing for one within.
Status protect(zmq::socket_t& socket, const Address& address, const Secret* secret, bool listens) {
  if (!address.takes_secret()) return {};
  if (!secret && !address.is_of_this_machine()) {
    return Status::invalid(fmt::format("{} leads beyond this machine, and needs a key", address.text()))
        .hint("docs/environments.md, \"Several hosts\", shows how to make one");
  }
  socket.set(zmq::sockopt::heartbeat_ivl, kHeartbeatMs);
  socket.set(zmq::sockopt::heartbeat_timeout, kHeartbeatTimeoutMs);
  if (!secret) return {};
  if (listens) {
    socket.set(zmq::sockopt::curve_server, true);
    socket.set(zmq::sockopt::curve_secretkey, secret->secret_key());
    return {};
  }
  std::array<char, 41> own_public{}, own_secret{};
  if (::zmq_curve_keypair(own_public.data(), own_secret.data()) != 0)
    return Status::unfit("this ZeroMQ was built without CURVE");
  socket.set(zmq::sockopt::curve_serverkey, secret->public_key());
  socket.set(zmq::sockopt::curve_publickey, std::string(own_public.data()));
  socket.set(zmq::sockopt::curve_secretkey, std::string(own_secret.data()));
  return {};
}

zmq::message_t frame_of(capnp::MessageBuilder& builder) {
  const auto words = capnp::messageToFlatArray(builder);
  const auto bytes = words.asBytes();
  return {bytes.begin(), bytes.size()};
}

// Checks the header's other fields and the frames behind it. ZeroMQ takes what it is given, and a flipped bit in a
// reward would be a reward.
uint64_t check_of(Header::Reader header, std::span<const zmq::message_t> frames) {
  struct Fields {
    uint64_t protocol, epoch, id, run;
  } const fields{header.getProtocol(), header.getEpoch(), header.getId(), header.getRun()};
  const std::string_view sender(header.getSender().cStr(), header.getSender().size());
  std::vector<Digest> digests = {digest_of(std::as_bytes(std::span(&fields, 1))), digest_of(sender)};
  for (const auto& frame : frames)
    digests.push_back(digest_of(std::span(static_cast<const std::byte*>(frame.data()), frame.size())));
  return std::max<uint64_t>(1, digest_of(std::as_bytes(std::span(digests))).low);
}

}  // namespace

struct Incoming::Storage {
  explicit Storage(kj::Array<capnp::word> words)
      : words(kj::mv(words)), reader(this->words, limits(this->words.size(), kReadOften)) {}
  kj::Array<capnp::word> words;
  capnp::FlatArrayMessageReader reader;
};

Body::Reader Incoming::body() const { return storage_->reader.getRoot<Body>(); }

std::span<const std::byte> Incoming::bulk(size_t index) const {
  return {static_cast<const std::byte*>(bulk_[index].data()), bulk_[index].size()};
}

Result<Socket> Socket::listen(zmq::context_t& context, const std::string& address, const Identity& identity,
                              const Secret* secret) {
  const Address place = TRY(Address::parse_to_listen(address));
  try {
    zmq::socket_t socket(context, zmq::socket_type::router);
    socket.set(zmq::sockopt::router_mandatory, 1);
    socket.set(zmq::sockopt::router_handover, 1);
    socket.set(zmq::sockopt::linger, 0);
    socket.set(zmq::sockopt::maxmsgsize, static_cast<int64_t>(kMaxBulkBytes));
    socket.set(zmq::sockopt::sndhwm, kQueueMessages);
    socket.set(zmq::sockopt::rcvhwm, kQueueMessages);
    TRY(protect(socket, place, secret, true));
    socket.bind(address);
    Socket result(std::move(socket), true, identity);
    result.address_ = result.socket_.get(zmq::sockopt::last_endpoint);
    return result;
  } catch (const zmq::error_t& error) {
    return fail(Status::unavailable(fmt::format("cannot listen on {}: {}", address, error.what())));
  }
}

Result<Socket> Socket::connect(zmq::context_t& context, const std::string& address, const Identity& identity,
                               const Secret* secret) {
  const Address place = TRY(Address::parse(address));
  try {
    zmq::socket_t socket(context, zmq::socket_type::dealer);
    socket.set(zmq::sockopt::routing_id, identity.sender);
    socket.set(zmq::sockopt::linger, 0);
    socket.set(zmq::sockopt::immediate, 1);
    socket.set(zmq::sockopt::reconnect_ivl, 50);
    socket.set(zmq::sockopt::reconnect_ivl_max, 500);
    socket.set(zmq::sockopt::maxmsgsize, static_cast<int64_t>(kMaxBulkBytes));
    socket.set(zmq::sockopt::sndhwm, kQueueMessages);
    socket.set(zmq::sockopt::rcvhwm, kQueueMessages);
    TRY(protect(socket, place, secret, false));
    socket.connect(address);
    Socket result(std::move(socket), false, identity);
    result.address_ = address;
    return result;
  } catch (const zmq::error_t& error) {
    return fail(Status::unavailable(fmt::format("cannot connect to {}: {}", address, error.what())));
  }
}

Status Socket::send(const std::string& peer, Outgoing& message) {
  capnp::MallocMessageBuilder head;
  auto header = head.initRoot<Header>();
  header.setProtocol(kProtocolVersion);
  header.setSender(identity_.sender);
  header.setEpoch(identity_.epoch);
  header.setId(message.id_);
  header.setRun(message.run_.value_or(identity_.run));
  std::vector<zmq::message_t> frames;
  if (listening_) frames.emplace_back(peer.data(), peer.size());
  frames.emplace_back();
  frames.push_back(frame_of(message.body_));
  for (auto& bulk : message.bulk_) frames.push_back(std::move(bulk));
  message.bulk_.clear();
  const size_t first = listening_ ? 1 : 0;
  header.setCheck(check_of(header.asReader(), std::span(frames).subspan(first + 1)));
  frames[first] = frame_of(head);
  if (!identity_.faults) return send_frames(std::move(frames), peer);
  send_late();
  // Where the other side serves every run, the name has the run before it.
  const auto fault = identity_.faults->take(identity_.sender.substr(identity_.sender.rfind('/') + 1));
  return fault ? send_at_fault(*fault, std::move(frames), peer) : send_frames(std::move(frames), peer);
}

Status Socket::send_at_fault(MessageFault fault, std::vector<zmq::message_t> frames, const std::string& peer) {
  switch (fault) {
    case MessageFault::kDrop:
      return {};
    case MessageFault::kDelay:
      late_.push_back({.due = SystemClock().now() + kMessageDelay, .frames = std::move(frames), .peer = peer});
      return {};
    case MessageFault::kDuplicate: {
      std::vector<zmq::message_t> copy;
      for (const auto& frame : frames) copy.emplace_back(frame.data(), frame.size());
      TRY(send_frames(std::move(copy), peer));
      break;
    }
    case MessageFault::kCorrupt: {
      // The last frame that has bytes: header, body, or what is in bulk.
      auto damaged = frames.rbegin();
      while (damaged->size() == 0) ++damaged;
      static_cast<char*>(damaged->data())[damaged->size() / 2] ^= 0x10;
      break;
    }
  }
  return send_frames(std::move(frames), peer);
}

void Socket::send_late() {
  const Time now = SystemClock().now();
  std::vector<Late> due;
  for (auto it = late_.begin(); it != late_.end();) {
    if (it->due > now) {
      ++it;
      continue;
    }
    due.push_back(std::move(*it));
    it = late_.erase(it);
  }
  for (Late& late : due) (void)send_frames(std::move(late.frames), late.peer);  // nobody waits for its outcome
}

Status Socket::send_frames(std::vector<zmq::message_t> frames, const std::string& peer) {
  try {
    for (size_t i = 0; i < frames.size(); ++i) {
      const auto more = i + 1 < frames.size() ? zmq::send_flags::sndmore : zmq::send_flags::none;
      // Once the first frame is taken, the rest of the message is.
      if (!socket_.send(frames[i], more | zmq::send_flags::dontwait)) {
        return Status::exhausted(
            fmt::format("the queue to {} is full or nobody is connected", listening_ ? peer : address_));
      }
    }
  } catch (const zmq::error_t& error) {
    return Status::unavailable(fmt::format("{} cannot be reached: {}", listening_ ? peer : address_, error.what()));
  }
  return {};
}

std::optional<Incoming> Socket::receive() {
  if (!late_.empty()) send_late();
  for (;;) {
    std::vector<zmq::message_t> frames;
    bool more = true;
    while (more) {
      zmq::message_t frame;
      try {
        if (!socket_.recv(frame, zmq::recv_flags::dontwait)) return std::nullopt;
      } catch (const zmq::error_t& error) {
        if (error.num() == EINTR) continue;
        return std::nullopt;
      }
      more = frame.more();
      if (frames.size() <= kMaxFrames) frames.push_back(std::move(frame));
    }
    if (auto message = read(std::move(frames))) return message;
    ++refused_;
  }
}

std::optional<Incoming> Socket::read(std::vector<zmq::message_t> frames) {
  const size_t first = listening_ ? 1 : 0;
  if (frames.size() < first + 2 || frames.size() > kMaxFrames) return std::nullopt;
  const zmq::message_t &head = frames[first], &body = frames[first + 1];
  if (head.size() > kMaxControlBytes || body.size() > kMaxControlBytes || head.size() % 8 != 0 ||
      body.size() % 8 != 0) {
    return std::nullopt;
  }
  try {
    const auto words = aligned(head);
    capnp::FlatArrayMessageReader reader(words, limits(words.size(), kReadOften));
    const auto header = reader.getRoot<Header>();
    const bool serves_every_run = listening_ && identity_.run == kEveryRun;
    const bool is_understood = header.getProtocol() == kProtocolVersion || identity_.hears_other_protocols;
    const auto behind = std::span(frames).subspan(first + 1);
    if (header.getCheck() != 0 && header.getCheck() != check_of(header, behind)) {
      if (refused_ < kRefusalsTold || std::has_single_bit(refused_))
        spdlog::warn("a message from {} was damaged on its way, and is refused",
                     listening_ ? frames[0].to_string_view() : address_);
      return std::nullopt;
    }
    if (!is_understood || (!serves_every_run && header.getRun() != identity_.run)) return std::nullopt;
    Incoming message;
    message.protocol_ = header.getProtocol();
    message.run_ = header.getRun();
    message.sender_ = header.getSender();
    // A peer speaks for itself only.
    if (listening_ && message.sender_ != frames[0].to_string_view()) return std::nullopt;
    message.epoch_ = header.getEpoch();
    message.id_ = header.getId();
    message.storage_ = std::make_shared<Incoming::Storage>(aligned(body));
    const auto& all = message.storage_->words;
    capnp::FlatArrayMessageReader once(all, limits(all.size(), kReadOnce));
    read_all(once.getRoot<Body>());
    for (size_t i = first + 2; i < frames.size(); ++i) message.bulk_.push_back(std::move(frames[i]));
    return message;
  } catch (const kj::Exception&) {
    return std::nullopt;
  }
}

bool wait(std::span<Socket* const> sockets, Duration timeout, int wake) {
  std::vector<zmq::pollitem_t> items;
  for (Socket* socket : sockets) items.push_back({socket->handle().handle(), 0, ZMQ_POLLIN, 0});
  if (wake >= 0) items.push_back({nullptr, wake, ZMQ_POLLIN, 0});
  const auto milliseconds = std::chrono::ceil<std::chrono::milliseconds>(std::max(timeout, Duration::zero()));
  try {
    return zmq::poll(items.data(), items.size(), milliseconds) > 0;
  } catch (const zmq::error_t&) {
    return false;  // a signal; the caller looks at its flags and comes again
  }
}

void write_failure(Body::Builder body, const Status& status) {
  auto failed = body.initFailed();
  failed.setCode(std::string(to_string(status.code())));
  failed.setMessage(status.message());
}

Status read_failure(Failed::Reader failed) {
  const std::string_view code = failed.getCode().cStr();
  for (int i = 1; i <= static_cast<int>(Code::kInternal); ++i) {
    if (to_string(static_cast<Code>(i)) == code) return {static_cast<Code>(i), failed.getMessage()};
  }
  return Status::internal(failed.getMessage());
}

}  // namespace tandem::wire
