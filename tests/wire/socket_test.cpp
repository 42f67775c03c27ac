#include "wire/socket.h"

#include <capnp/serialize.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <algorithm>
#include <cstring>
#include <functional>

#include "base/random.h"

namespace tandem::wire {
namespace {

using namespace std::chrono_literals;

std::optional<Incoming> next(Socket& socket) {
  Socket* const sockets[] = {&socket};
  wait(sockets, 2s);
  return socket.receive();
}

struct Pair {
  zmq::context_t context;
  Socket server = std::move(*Socket::listen(context, "tcp://127.0.0.1:*", {"server", 1, 77}));
  Socket client = std::move(*Socket::connect(context, server.address(), {"client", 3, 77}));

  // The connection is there when a first message has come through.
  void greet() {
    for (int attempt = 0; attempt < 100; ++attempt) {
      Outgoing hello;
      hello.body().setWatch();
      if (client.send("", hello).ok() && next(server)) return;
      Socket* const sockets[] = {&server};
      wait(sockets, 20ms);
    }
    FAIL() << "no connection";
  }
};

TEST(Socket, carries_a_message_with_bulk_and_answers_by_name) {
  Pair pair;
  pair.greet();
  Outgoing message(42);
  auto trajectory = message.body().initTrajectory();
  trajectory.setEpisode(7);
  trajectory.setCount(3);
  const std::vector<int32_t> tokens = {1, 2, 3};
  message.add_bulk_of(std::span<const int32_t>(tokens));
  ASSERT_TRUE(pair.client.send("", message));
  const auto got = next(pair.server);
  ASSERT_TRUE(got);
  EXPECT_EQ(got->sender(), "client");
  EXPECT_EQ(got->epoch(), 3u);
  EXPECT_EQ(got->id(), 42u);
  ASSERT_TRUE(got->body().isTrajectory());
  EXPECT_EQ(got->body().getTrajectory().getEpisode(), 7u);
  EXPECT_EQ(*got->bulk_of<int32_t>(0, 3), tokens);
  EXPECT_EQ(got->bulk_of<int32_t>(0, 4).error().code(), Code::kCorrupt);
  EXPECT_EQ(got->bulk_of<int32_t>(1, 3).error().code(), Code::kCorrupt);

  Outgoing answer(got->id());
  write_failure(answer.body(), Status::exhausted("no room"));
  ASSERT_TRUE(pair.server.send("client", answer));
  const auto back = next(pair.client);
  ASSERT_TRUE(back);
  EXPECT_EQ(read_failure(back->body().getFailed()), Status::exhausted("no room"));
}

TEST(Socket, says_that_an_unknown_peer_cannot_be_reached) {
  Pair pair;
  Outgoing message;
  message.body().setWatch();
  EXPECT_EQ(pair.server.send("nobody", message).code(), Code::kUnavailable);
}

TEST(Socket, refuses_messages_of_another_run) {
  Pair pair;
  pair.greet();
  auto stranger = std::move(*Socket::connect(pair.context, pair.server.address(), {"stranger", 1, 78}));
  for (int attempt = 0; attempt < 100 && pair.server.refused() == 0; ++attempt) {
    Outgoing message;
    message.body().setWatch();
    (void)stranger.send("", message);
    Socket* const sockets[] = {&pair.server};
    wait(sockets, 20ms);
    EXPECT_FALSE(pair.server.receive());
  }
  EXPECT_GT(pair.server.refused(), 0u);
}

TEST(Socket, survives_random_frames) {
  Pair pair;
  pair.greet();
  zmq::socket_t raw(pair.context, zmq::socket_type::dealer);
  raw.set(zmq::sockopt::linger, 0);
  raw.connect(pair.server.address());
  Random random(1);
  const int messages = 300;
  for (int i = 0; i < messages; ++i) {
    const auto frames = random.between(1, 5);
    for (int64_t f = 0; f < frames; ++f) {
      std::string bytes(random.below(40) * (random.chance(0.7) ? 8 : 1), '\0');
      for (char& byte : bytes) byte = random.chance(0.5) ? 0 : static_cast<char>(random.below(256));
      raw.send(zmq::buffer(bytes), f + 1 < frames ? zmq::send_flags::sndmore : zmq::send_flags::none);
    }
  }
  for (int waits = 0; waits < 100 && pair.server.refused() < messages; ++waits) {
    Socket* const sockets[] = {&pair.server};
    wait(sockets, 20ms);
    EXPECT_FALSE(pair.server.receive());
  }
  EXPECT_EQ(pair.server.refused(), static_cast<uint64_t>(messages));
}

// Cap'n Proto looks at a text or a list when it is read: that would be in the middle of a role's work.
TEST(Socket, a_message_whose_text_or_list_is_broken_is_refused_before_a_role_reads_it) {
  Pair pair;
  zmq::socket_t raw(pair.context, zmq::socket_type::dealer);
  raw.set(zmq::sockopt::linger, 0);
  raw.set(zmq::sockopt::routing_id, "stranger");
  raw.connect(pair.server.address());
  const auto flat = [](capnp::MessageBuilder& builder) {
    const auto words = capnp::messageToFlatArray(builder);
    const auto bytes = words.asChars();
    return std::string(bytes.begin(), bytes.size());
  };
  capnp::MallocMessageBuilder head;
  auto header = head.initRoot<Header>();
  header.setProtocol(kProtocolVersion);
  header.setSender("stranger");
  header.setRun(77);
  const std::string text = "a name that stands nowhere else";
  capnp::MallocMessageBuilder builder;
  builder.initRoot<Body>().initHello().setName(text);
  const std::string good = flat(builder);
  std::string endless = good, nowhere = good;
  endless[good.find(text) + text.size()] = '!';
  nowhere.resize(good.find(text) / 8 * 8);  // the segment is said to be longer than the frame
  // A list of structs without fields takes no room, however many it claims to have: reading it costs what it claims.
  capnp::MallocMessageBuilder claims;
  claims.initRoot<Body>().initHello().initHolding(1);
  std::string many = flat(claims);
  uint64_t tag = 0;
  size_t at = std::string::npos;
  for (size_t word = 0; word + 8 <= many.size(); word += 8) {
    std::memcpy(&tag, many.data() + word, 8);
    if (tag == (uint64_t{1} << 2 | uint64_t{2} << 32)) at = word;  // one element of two words
  }
  ASSERT_NE(at, std::string::npos);
  tag = uint64_t{100'000'000} << 2;  // so many of no words
  std::memcpy(many.data() + at, &tag, 8);
  for (const auto& body : {endless, nowhere, many, good}) {
    const std::string first = flat(head);
    raw.send(zmq::buffer(first), zmq::send_flags::sndmore);
    raw.send(zmq::buffer(body), zmq::send_flags::none);
  }
  // Those that are refused may come by themselves; then nothing is received from them.
  std::optional<Incoming> message;
  const SystemClock clock;
  for (const Time deadline = clock.now() + 20s; !message && clock.now() < deadline;) message = next(pair.server);
  ASSERT_TRUE(message);
  EXPECT_EQ(std::string(message->body().getHello().getName()), text);
  EXPECT_EQ(pair.server.refused(), 3u);
}

// A pair whose client sends what is asked for.
struct FaultyPair {
  fs::path path = fs::path(testing::TempDir()) / ("faults-" + std::to_string(::getpid()));
  std::shared_ptr<Faults> faults = *Faults::create(path), asked = *Faults::open(path);
  zmq::context_t context;
  Socket server = std::move(*Socket::listen(context, "tcp://127.0.0.1:*", {"server", 1, 77}));
  Socket client = std::move(
      *Socket::connect(context, server.address(),
                       {.sender = "client", .epoch = 3, .run = 77, .hears_other_protocols = false, .faults = faults}));
  ~FaultyPair() { fs::remove(path); }

  // Sends numbered messages until `last` has come; which have come, in order.
  std::vector<uint64_t> numbers(uint64_t last, Duration patience = 20s) {
    std::vector<uint64_t> come;
    const SystemClock clock;
    uint64_t next = 1;
    for (const Time deadline = clock.now() + patience; clock.now() < deadline;) {
      if (next <= last) {
        Outgoing message(next);
        message.body().setOpenRun("number " + std::to_string(next));
        if (client.send("", message).ok()) ++next;
      }
      (void)client.receive();
      Socket* const sockets[] = {&server};
      wait(sockets, 5ms);
      while (const auto message = server.receive()) come.push_back(message->id());
      if (!come.empty() && std::ranges::count(come, last) > 0 && late(come)) break;
    }
    return come;
  }
  std::function<bool(const std::vector<uint64_t>&)> late = [](const auto&) { return true; };
};

TEST(SocketFaults, a_message_is_lost_or_comes_twice_or_late_when_that_is_asked_for) {
  FaultyPair pair;
  ASSERT_EQ(pair.numbers(1), (std::vector<uint64_t>{1}));
  pair.asked->ask("client", MessageFault::kDrop);
  pair.asked->ask("somebody-else", MessageFault::kDrop);
  EXPECT_EQ(pair.numbers(3), (std::vector<uint64_t>{2, 3}));
  pair.asked->ask("client", MessageFault::kDuplicate);
  EXPECT_EQ(pair.numbers(2), (std::vector<uint64_t>{1, 1, 2}));
  pair.asked->ask("client", MessageFault::kDelay);
  pair.late = [](const auto& come) { return std::ranges::count(come, 1u) > 0; };
  EXPECT_EQ(pair.numbers(2), (std::vector<uint64_t>{2, 1}));
  EXPECT_EQ(pair.asked->done(MessageFault::kDrop), 1u);
  EXPECT_EQ(pair.asked->done(MessageFault::kDelay), 1u);
}

TEST(SocketFaults, a_damaged_message_is_refused_wherever_the_damage_is) {
  FaultyPair pair;
  ASSERT_EQ(pair.numbers(1), (std::vector<uint64_t>{1}));
  for (int bulk = 0; bulk < 3; ++bulk) {
    const auto refused = pair.server.refused();
    pair.asked->ask("client", MessageFault::kCorrupt);
    for (uint64_t id = 1; id <= 2; ++id) {
      Outgoing message(id);
      message.body().setOpenRun("it costs 16 dollars");
      const std::vector<std::byte> bytes(1000);
      for (int i = 0; i < bulk; ++i) message.add_bulk(bytes);
      ASSERT_TRUE(pair.client.send("", message));
    }
    // The damaged one may come by itself; then nothing is received from it.
    std::optional<Incoming> got;
    const SystemClock clock;
    for (const Time deadline = clock.now() + 20s; !got && clock.now() < deadline;) got = next(pair.server);
    ASSERT_TRUE(got);
    EXPECT_EQ(got->id(), 2u);
    EXPECT_EQ(pair.server.refused(), refused + 1);
  }
}

}  // namespace
}  // namespace tandem::wire
