#include "rollout/env_lines.h"

#include <gtest/gtest.h>

#include <set>

namespace tandem::rollout {
namespace {

using namespace std::chrono_literals;

// A rollout's lines to servers that this test plays, and time that it owns.
class EnvLinesTest : public testing::Test {
 protected:
  EnvLinesTest() {
    clock_.advance(1h);
    for (int i = 0; i < 3; ++i) add_server();
    lines_.emplace(
        [&](const wire::Address& address) {
          return wire::Socket::connect(context_, address.text(), {"rollout-0", 1, 7});
        },
        0, clock_);
    EXPECT_TRUE(lines_->follow(directory_));
    // What is sent before there is a connection is lost.
    std::set<int> connected;
    for (const Time limit = real_.now() + 20s; connected.size() < servers_.size() && real_.now() < limit;) {
      greet();
      for (int i = 0; i < 3; ++i) {
        if (hear(i, 5ms)) connected.insert(i);
      }
    }
    answer_all();
  }

  // Its rank is its place.
  void add_server() {
    const wire::Peer peer{wire::Role::kEnv, static_cast<int>(servers_.size())};
    servers_.push_back(
        std::move(*wire::Socket::listen(context_, "tcp://127.0.0.1:*", {to_string(peer), 1, wire::kEveryRun})));
    EXPECT_TRUE(directory_.put(peer, {.address = *wire::Address::parse(servers_.back().address()), .host = "local"}));
  }
  // The next message that comes to a server.
  std::optional<wire::Incoming> hear(int server, Duration patience = 20s) {
    wire::Socket* const sockets[] = {&servers_[static_cast<size_t>(server)]};
    wire::wait(sockets, patience);
    return servers_[static_cast<size_t>(server)].receive();
  }
  // The next message that comes to the rollout.
  std::optional<EnvLines::Heard> listen() {
    std::vector<wire::Socket*> sockets;
    lines_->add_sockets(sockets);
    wire::wait(sockets, 20s);
    return lines_->receive();
  }
  // A request is a second late, so that everybody is greeted.
  void greet() {
    ask(0, 0);
    clock_.advance(1100ms);
    lines_->greet_if_late();
    lines_->drop(0);
  }
  // Every server that is not in `silent` answers a greeting, and the rollout has heard it.
  void answer_all(std::set<int> silent = {}) {
    greet();
    int answers = 0;
    for (int i = 0; i < static_cast<int>(servers_.size()); ++i) {
      if (silent.contains(i)) continue;
      for (auto message = hear(i); message; message = hear(i, 0s), ++answers) {
        wire::Outgoing welcome(message->id(), message->run());
        welcome.body().initWelcome();
        EXPECT_TRUE(servers_[static_cast<size_t>(i)].send(message->sender(), welcome));
      }
    }
    while (answers-- > 0) EXPECT_TRUE(listen());
  }
  static EpisodeKey key(uint64_t episode) { return {.episode = episode, .attempt = 1}; }
  void ask(int server, uint64_t episode, uint64_t ask = 1) {
    lines_->send(server, {key(episode), ask},
                 [&](wire::Body::Builder body) { body.initAcquire().setEpisode(episode); });
  }
  // Where an episode goes, which is one more there.
  int place() {
    const auto server = lines_->best(load_);
    EXPECT_TRUE(server);
    ++load_[server.value_or(0)];
    return server.value_or(0);
  }
  // The next request that a server hears; greetings are no requests.
  std::optional<wire::Incoming> hear_request(int server) {
    auto message = hear(server);
    while (message && message->body().isHello()) message = hear(server);
    return message;
  }
  void answer(int server, const wire::Incoming& request) {
    wire::Outgoing scored(request.id(), request.run());
    scored.body().initScored().setReward(1);
    EXPECT_TRUE(servers_[static_cast<size_t>(server)].send(request.sender(), scored));
  }

  const SystemClock real_;
  ManualClock clock_;
  zmq::context_t context_;
  std::vector<wire::Socket> servers_;
  wire::Directory directory_;
  std::optional<EnvLines> lines_;
  EnvLines::Load load_;
};

TEST_F(EnvLinesTest, a_server_on_the_same_machine_is_taken_first_and_not_beyond_reason) {
  const auto connect = [&](const wire::Address& address) {
    return wire::Socket::connect(context_, address.text(), {"rollout-1", 1, 7});
  };
  wire::Directory directory;
  for (const auto& [rank, host] : {std::pair(0, "far:1"), std::pair(1, "near:1"), std::pair(2, "far:2")}) {
    const auto address = wire::Address::parse(servers_[static_cast<size_t>(rank)].address());
    EXPECT_TRUE(directory.put({wire::Role::kEnv, rank}, {.address = *address, .host = host}));
  }
  lines_.emplace(connect, 0, clock_, "near:1");
  EXPECT_TRUE(lines_->follow(directory));
  for (size_t i = 0; i < EnvLines::kFar; ++i) EXPECT_EQ(place(), 1);
  for (int i = 0; i < 3; ++i) place();
  EXPECT_EQ(load_[1], EnvLines::kFar + 1);
  EXPECT_EQ(load_[0], 1u);
  EXPECT_EQ(load_[2], 1u);
}

TEST_F(EnvLinesTest, episodes_are_shared_out_evenly) {
  for (int i = 0; i < 6; ++i) place();
  EXPECT_EQ(load_, (EnvLines::Load{{0, 2}, {1, 2}, {2, 2}}));
}

TEST_F(EnvLinesTest, an_answer_is_of_the_request_that_it_answers) {
  ask(1, 5, 2);
  const auto heard = hear_request(1);
  ASSERT_TRUE(heard && heard->body().isAcquire());
  clock_.advance(3s);
  answer(1, *heard);
  const auto answered = listen();
  ASSERT_TRUE(answered && answered->request);
  EXPECT_EQ(answered->server, 1);
  EXPECT_EQ(answered->request->key, key(5));
  EXPECT_EQ(answered->request->ask, 2u);
  EXPECT_EQ(answered->waited, 3s);
  answer(1, *heard);
  const auto again = listen();
  ASSERT_TRUE(again);
  EXPECT_FALSE(again->request) << "it was answered";
}

TEST_F(EnvLinesTest, an_answer_to_an_earlier_ask_of_an_episode_is_not_waited_for) {
  ask(1, 5, 1);
  const auto first = hear_request(1);
  ask(2, 5, 2);
  const auto second = hear_request(2);
  ask(2, 5, 2);
  const auto repeated = hear_request(2);
  ASSERT_TRUE(first && second && repeated);
  answer(1, *first);
  auto answered = listen();
  ASSERT_TRUE(answered);
  EXPECT_FALSE(answered->request);
  answer(2, *second);
  answered = listen();
  ASSERT_TRUE(answered && answered->request) << "though it was asked again";
  EXPECT_EQ(answered->request->ask, 2u);
}

TEST_F(EnvLinesTest, a_server_without_room_is_left_alone_for_a_second) {
  for (int i = 0; i < 3; ++i) {
    EXPECT_TRUE(lines_->has_room(load_));
    lines_->leave_alone(*lines_->best(load_));
  }
  EXPECT_FALSE(lines_->has_room(load_));
  EXPECT_TRUE(lines_->best(load_)) << "it is asked all the same";
  clock_.advance(1s);
  EXPECT_TRUE(lines_->has_room(load_));
}

TEST_F(EnvLinesTest, a_silent_server_gets_no_episodes) {
  ask(1, 1);
  EXPECT_TRUE(lines_->silent().empty());
  clock_.advance(6s);
  answer_all({1});
  EXPECT_EQ(lines_->silent(), std::vector<int>{1});
  for (int i = 0; i < 9; ++i) EXPECT_NE(place(), 1);

  answer_all();
  EXPECT_TRUE(lines_->silent().empty());
  EXPECT_EQ(place(), 1) << "it answers again, and has the fewest";
}

TEST_F(EnvLinesTest, where_all_are_silent_nobody_is_better) {
  for (int server = 0; server < 3; ++server) ask(server, 1);
  clock_.advance(6s);
  EXPECT_TRUE(lines_->silent().empty());
}

TEST_F(EnvLinesTest, another_life_of_a_server_is_noticed) {
  const std::string address = servers_[1].address();
  servers_[1] = std::move(*wire::Socket::listen(context_, "tcp://127.0.0.1:*", {"spare", 1, wire::kEveryRun}));
  // The port is free some moments after its socket has gone.
  auto again = wire::Socket::listen(context_, address, {"env-1", 2, wire::kEveryRun});
  for (const Time limit = real_.now() + 20s; !again && real_.now() < limit;)
    again = wire::Socket::listen(context_, address, {"env-1", 2, wire::kEveryRun});
  ASSERT_TRUE(again) << again.error().to_string();
  servers_[1] = std::move(*again);
  std::optional<EnvLines::Heard> heard;
  for (const Time limit = real_.now() + 20s; !heard && real_.now() < limit;) {
    greet();
    if (const auto message = hear(1, 50ms)) {
      wire::Outgoing welcome(message->id(), message->run());
      welcome.body().initWelcome();
      EXPECT_TRUE(servers_[1].send(message->sender(), welcome));
      heard = listen();
    }
  }
  ASSERT_TRUE(heard);
  EXPECT_EQ(heard->server, 1);
  EXPECT_TRUE(heard->is_new_life);
}

TEST_F(EnvLinesTest, a_server_that_joins_gets_episodes) {
  for (int i = 0; i < 3; ++i) place();
  add_server();
  ASSERT_TRUE(lines_->follow(directory_));
  EXPECT_EQ(place(), 3) << "it has the fewest";
}

TEST_F(EnvLinesTest, a_server_that_leaves_gets_no_episodes_and_keeps_its_line_until_a_while_after_its_last) {
  for (int i = 0; i < 6; ++i) place();
  directory_.remove({wire::Role::kEnv, 1});
  ASSERT_TRUE(lines_->follow(directory_));
  EXPECT_EQ(lines_->silent(), std::vector<int>{1}) << "what has not begun goes elsewhere";
  for (int i = 0; i < 6; ++i) EXPECT_NE(place(), 1);

  clock_.advance(10s);
  lines_->end_unused(load_);
  ASSERT_TRUE(lines_->knows(1));
  ask(1, 1);
  EXPECT_TRUE(hear_request(1));

  // The line outlives the last episode for a moment, in which the lease that it let go of gets there.
  load_.erase(1);
  lines_->end_unused(load_);
  lines_->release(1, 5);
  const auto released = hear_request(1);
  ASSERT_TRUE(released && released->body().isRelease());
  EXPECT_EQ(released->body().getRelease(), 5u);
  clock_.advance(10s);
  lines_->end_unused(load_);
  EXPECT_FALSE(lines_->knows(1));
}

TEST_F(EnvLinesTest, a_server_that_comes_back_gets_episodes_though_it_was_silent_when_it_left) {
  ask(1, 1);
  const wire::Directory before = directory_;
  directory_.remove({wire::Role::kEnv, 1});
  ASSERT_TRUE(lines_->follow(directory_));
  clock_.advance(6s);
  ASSERT_TRUE(lines_->follow(before));
  EXPECT_TRUE(lines_->silent().empty());
  std::set<int> used;
  for (int i = 0; i < 3; ++i) used.insert(place());
  EXPECT_TRUE(used.contains(1));
}

TEST_F(EnvLinesTest, where_all_servers_have_left_there_is_none_until_one_comes) {
  const wire::Directory before = directory_;
  for (int rank = 0; rank < 3; ++rank) directory_.remove({wire::Role::kEnv, rank});
  ASSERT_TRUE(lines_->follow(directory_));
  EXPECT_FALSE(lines_->best(load_));
  EXPECT_FALSE(lines_->has_room(load_));
  EXPECT_TRUE(lines_->silent().empty());
  ASSERT_TRUE(lines_->follow(before));
  EXPECT_TRUE(lines_->best(load_));
}

TEST_F(EnvLinesTest, a_server_that_cannot_be_reached_for_two_seconds_is_lost_until_it_is_back) {
  const std::string address = servers_[1].address();
  servers_[1] = std::move(*wire::Socket::listen(context_, "tcp://127.0.0.1:*", {"spare", 1, wire::kEveryRun}));
  const Time limit = real_.now() + 20s;
  // It takes a moment until the connection is gone. The others read: to a queue that is full nothing can be sent
  // either.
  const auto greet_and_read = [&] {
    greet();
    for (const int other : {0, 2})
      for (auto message = hear(other); message; message = hear(other, 0s)) continue;
  };
  while (lines_->lost().empty() && real_.now() < limit) greet_and_read();
  EXPECT_EQ(lines_->lost(), std::vector<int>{1});
  for (int i = 0; i < 9; ++i) EXPECT_NE(place(), 1);

  auto again = wire::Socket::listen(context_, address, {"env-1", 2, wire::kEveryRun});
  while (!again && real_.now() < limit) again = wire::Socket::listen(context_, address, {"env-1", 2, wire::kEveryRun});
  ASSERT_TRUE(again) << again.error().to_string();
  servers_[1] = std::move(*again);
  while (!lines_->lost().empty() && real_.now() < limit) {
    greet_and_read();
    (void)hear(1, 10ms);
  }
  EXPECT_TRUE(lines_->lost().empty());
}

TEST_F(EnvLinesTest, a_server_that_has_moved_is_asked_where_it_is_now) {
  add_server();
  ASSERT_TRUE(directory_.put({wire::Role::kEnv, 1}, *directory_.find({wire::Role::kEnv, 3})));
  directory_.remove({wire::Role::kEnv, 3});
  ASSERT_TRUE(lines_->follow(directory_));
  std::optional<wire::Incoming> asked;
  for (int i = 0; i < 100 && !asked; ++i) {
    ask(1, 5);  // again, since nothing goes to a server before there is a connection
    asked = hear(3, 50ms);
  }
  ASSERT_TRUE(asked && asked->body().isAcquire());
}

}  // namespace
}  // namespace tandem::rollout
