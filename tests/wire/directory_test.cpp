#include "wire/directory.h"

#include <capnp/message.h>
#include <gmock/gmock.h>

namespace tandem::wire {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;

Directory::Entry entry(const char* address, uint64_t epoch = 1) {
  return {.address = *Address::parse(address), .host = "local", .epoch = epoch};
}

TEST(Peer, is_written_and_read_in_one_way_only) {
  for (const Peer peer : {Peer{Role::kRollout, 1}, Peer{Role::kEnv, 0}, Peer{Role::kTrainer, kMaxRank}})
    EXPECT_EQ(*parse_peer(to_string(peer)), peer);
  EXPECT_EQ(to_string(Peer{Role::kRollout, 1}), "rollout-1");
  for (const char* text : {"", "-", "rollout", "rollout-", "rollout-01", "rollout-+1", "rollout--1", "rollout-1 ",
                           "rollout-100001", "rollout-99999999999", "Rollout-1", "cook-1", "1-rollout"})
    EXPECT_FALSE(parse_peer(text)) << text;
  EXPECT_LT((Peer{Role::kTrainer, 7}), (Peer{Role::kRollout, 0}));
  EXPECT_THAT(role_named("cook").error().message(), HasSubstr("expected supervisor, coordinator"));
}

TEST(Address, knows_sockets_of_this_machine_from_ports_of_others) {
  const Address socket = Address::of_path("/tmp/a/b");
  EXPECT_EQ(socket, *Address::parse("ipc:///tmp/a/b"));
  EXPECT_TRUE(socket.is_of_this_machine());
  EXPECT_FALSE(socket.takes_secret());
  EXPECT_EQ(socket.path(), "/tmp/a/b");
  EXPECT_EQ(socket.host(), "");
  const Address port = *Address::parse("tcp://10.0.0.5:7070");
  EXPECT_FALSE(port.is_of_this_machine());
  EXPECT_TRUE(port.takes_secret());
  EXPECT_EQ(port.path(), "");
  EXPECT_EQ(port.host(), "10.0.0.5");
  for (const char* text : {"tcp://127.0.0.1:1", "tcp://localhost:1", "tcp://[::1]:1"}) {
    EXPECT_TRUE(Address::parse(text)->is_of_this_machine()) << text;
    EXPECT_TRUE(Address::parse(text)->takes_secret()) << text;
  }
  EXPECT_FALSE(Address::parse("tcp://127x.example:1")->is_of_this_machine());
  EXPECT_FALSE(Address::parse("tcp://localhost.example:1")->is_of_this_machine());
}

TEST(Address, is_made_of_its_parts) {
  EXPECT_EQ(Address::of_port("10.0.0.5", 7070), *Address::parse("tcp://10.0.0.5:7070"));
  EXPECT_EQ(Address::of_any_port("10.0.0.5"), *Address::parse_to_listen("tcp://10.0.0.5:*"));
  EXPECT_EQ(Address::of_port("10.0.0.5", 7070).host_and_port(), "10.0.0.5:7070");
  EXPECT_EQ(Address::of_port("[::1]", 7070).host(), "[::1]");
  EXPECT_EQ(Address::of_path("/tmp/a").host_and_port(), "");
  EXPECT_TRUE(Address::is_network("tcp://no port"));
  EXPECT_FALSE(Address::is_network("runs/tcp"));
  EXPECT_FALSE(Address::is_network("ipc:///tmp/a"));
}

TEST(Address, what_is_none_is_refused) {
  const std::string endless = "ipc:///" + std::string(2000, 'a'), cut("ipc:///tmp/a\0b", 14);
  for (const std::string& text :
       {std::string(), std::string("here"), std::string("ipc://"), std::string("tcp://"), std::string("tcp://:1"),
        std::string("tcp://a"), std::string("tcp://a:"), std::string("tcp://a:b"), std::string("tcp://a:65536"),
        std::string("udp://a:1"), std::string("tcp://a:*"), endless, cut})
    EXPECT_FALSE(Address::parse(text)) << text;
  EXPECT_TRUE(Address::parse_to_listen("tcp://a:*"));
}

TEST(Directory, its_version_grows_with_every_change_and_with_nothing_else) {
  Directory directory;
  EXPECT_EQ(directory.version(), 0u);
  EXPECT_TRUE(*directory.put({Role::kEnv, 0}, entry("ipc:///a")));
  EXPECT_EQ(directory.version(), 1u);
  EXPECT_FALSE(*directory.put({Role::kEnv, 0}, entry("ipc:///a")));
  EXPECT_EQ(directory.version(), 1u);
  EXPECT_TRUE(*directory.put({Role::kEnv, 0}, entry("ipc:///a", 2))) << "it has started again";
  EXPECT_EQ(directory.find({Role::kEnv, 0})->epoch, 2u);
  EXPECT_EQ(directory.version(), 2u);
  EXPECT_FALSE(directory.remove({Role::kEnv, 1}));
  EXPECT_EQ(directory.version(), 2u);
  EXPECT_TRUE(directory.remove({Role::kEnv, 0}));
  EXPECT_EQ(directory.version(), 3u);
  EXPECT_EQ(directory.find({Role::kEnv, 0}), nullptr);
}

TEST(Directory, lists_the_ranks_of_a_role_and_finds_who_is_at_an_address) {
  Directory directory;
  for (const int rank : {3, 0, 1}) ASSERT_TRUE(directory.put({Role::kEnv, rank}, entry("ipc:///e")));
  ASSERT_TRUE(directory.put({Role::kTrainer, 0}, entry("ipc:///t")));
  ASSERT_TRUE(directory.put({Role::kRollout, 5}, entry("ipc:///r")));
  EXPECT_THAT(directory.all(Role::kEnv), ElementsAre(Peer{Role::kEnv, 0}, Peer{Role::kEnv, 1}, Peer{Role::kEnv, 3}));
  EXPECT_THAT(directory.all(Role::kCoordinator), ElementsAre());
  EXPECT_EQ(directory.at("ipc:///r"), (Peer{Role::kRollout, 5}));
  EXPECT_FALSE(directory.at("ipc:///nowhere"));
}

TEST(Directory, has_a_bound) {
  Directory directory;
  for (size_t i = 0; i < Directory::kMaxPeers; ++i)
    ASSERT_TRUE(directory.put({Role::kEnv, static_cast<int>(i)}, entry("ipc:///e")));
  EXPECT_EQ(directory.put({Role::kTrainer, 0}, entry("ipc:///t")).error().code(), Code::kExhausted);
  EXPECT_TRUE(directory.put({Role::kEnv, 0}, entry("ipc:///other"))) << "what is listed may change";
}

TEST(Directory, travels_in_a_message_and_refuses_one_that_is_none) {
  Directory directory;
  ASSERT_TRUE(directory.put({Role::kEnv, 1}, entry("tcp://10.0.0.5:7070", 0)));
  ASSERT_TRUE(directory.put({Role::kTrainer, 0}, entry("ipc:///t", 4)));
  capnp::MallocMessageBuilder message;
  directory.write(message.initRoot<Peers>());
  EXPECT_EQ(*Directory::read(message.getRoot<Peers>().asReader()), directory);

  auto peers = message.getRoot<Peers>().getPeers();
  peers[0].setPeer("env-1");
  EXPECT_THAT(Directory::read(message.getRoot<Peers>().asReader()).error().message(), HasSubstr("env-1"))
      << "listed twice";
  peers[0].setPeer("trainer");
  EXPECT_FALSE(Directory::read(message.getRoot<Peers>().asReader()));
  peers[0].setPeer("trainer-0");
  peers[1].setAddress("nowhere");
  EXPECT_FALSE(Directory::read(message.getRoot<Peers>().asReader()));
}

}  // namespace
}  // namespace tandem::wire
