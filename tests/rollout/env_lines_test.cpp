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
        "/runs/a", 0, clock_);
    EXPECT_TRUE(lines_->follow(directory_));
    for (int i = 0; i < static_cast<int>(servers_.size()); ++i) {
      while (!hear(i)) lines_->greet();
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
  // What came to a server within a moment.
  std::optional<wire::Incoming> hear(int server) {
    wire::Socket* const sockets[] = {&servers_[static_cast<size_t>(server)]};
    wire::wait(sockets, 200ms);
    return servers_[static_cast<size_t>(server)].receive();
  }
  // What arrived at the rollout within a moment.
  std::optional<EnvLines::Heard> listen() {
    std::vector<wire::Socket*> sockets;
    lines_->add_sockets(sockets);
    wire::wait(sockets, 200ms);
    return lines_->receive();
  }
  // Every server that is not in `silent` answers a greeting, and the rollout has heard it.
  void answer_all(std::set<int> silent = {}) {
    lines_->greet();
    for (int i = 0; i < static_cast<int>(servers_.size()); ++i) {
      while (auto message = hear(i)) {
        if (silent.contains(i)) continue;
        wire::Outgoing welcome(message->id(), message->run());
        welcome.body().initWelcome();
        EXPECT_TRUE(servers_[static_cast<size_t>(i)].send(message->sender(), welcome));
      }
    }
    while (listen()) {
    }
  }
  AgentEpisode& episode(uint64_t id) {
    AgentEpisode& e = episodes_[id];
    e.lease.key = {.episode = id, .attempt = 1};
    e.waiting = Waiting::kSandbox;
    return e;
  }

  ManualClock clock_;
  zmq::context_t context_;
  std::vector<wire::Socket> servers_;
  wire::Directory directory_;
  std::optional<EnvLines> lines_;
  std::map<uint64_t, AgentEpisode> episodes_;
};

TEST_F(EnvLinesTest, episodes_are_shared_out_evenly_and_each_stays_where_it_began) {
  std::map<int, int> counts;
  for (uint64_t id = 1; id <= 6; ++id) {
    lines_->ask(episode(id));
    ++counts[*episodes_[id].env_server];
  }
  EXPECT_EQ(counts, (std::map<int, int>{{0, 2}, {1, 2}, {2, 2}}));
  const auto asked = hear(*episodes_[1].env_server);
  ASSERT_TRUE(asked && asked->body().isAcquire());
  EXPECT_EQ(std::string_view(asked->body().getAcquire().getRunDir().cStr()), "/runs/a");
  EXPECT_EQ(lines_->episode_of(*asked), 1u);

  AgentEpisode& e = episodes_[1];
  const int home = *e.env_server;
  e.env_lease = 5;
  e.waiting = Waiting::kTools;
  for (uint64_t id = 2; id <= 6; ++id) lines_->release(episodes_[id]);
  lines_->ask(e);  // though all the others are empty now
  EXPECT_EQ(e.env_server, home);
  auto heard = hear(home);
  while (heard && heard->body().isAcquire()) heard = hear(home);
  ASSERT_TRUE(heard && heard->body().isCall());

  lines_->release(e);
  const auto released = hear(home);
  ASSERT_TRUE(released && released->body().isRelease());
  EXPECT_EQ(released->body().getRelease(), 5u);
  EXPECT_FALSE(e.env_server);
}

TEST_F(EnvLinesTest, where_there_is_no_room_another_is_asked_and_where_there_is_none_at_all_it_waits) {
  AgentEpisode& e = episode(1);
  std::set<int> asked;
  for (int i = 0; i < 3; ++i) {
    lines_->ask(e);
    asked.insert(*e.env_server);
    lines_->ask_elsewhere(e);
    EXPECT_EQ(e.request, 0u);
    EXPECT_EQ(e.ask_at <= clock_.now(), i < 2) << i;
  }
  EXPECT_EQ(asked, (std::set<int>{0, 1, 2}));
  clock_.advance(2s);
  EXPECT_LE(e.ask_at, clock_.now());
  lines_->ask(e);
  EXPECT_NE(e.request, 0u);
}

TEST_F(EnvLinesTest, a_silent_server_gets_no_episodes_and_keeps_none_that_has_not_begun) {
  lines_->ask(episode(1));
  const int silent = *episodes_[1].env_server;
  EXPECT_FALSE(lines_->is_stranded(episodes_[1]));
  clock_.advance(6s);
  answer_all({silent});
  EXPECT_TRUE(lines_->is_stranded(episodes_[1]));
  for (uint64_t id = 2; id <= 9; ++id) {
    lines_->ask(episode(id));
    EXPECT_NE(episodes_[id].env_server, silent);
    EXPECT_FALSE(lines_->is_stranded(episodes_[id]));
  }
  lines_->ask(episodes_[1]);
  EXPECT_NE(episodes_[1].env_server, silent);

  clock_.advance(1s);
  answer_all();
  lines_->ask(episode(10));
  EXPECT_EQ(episodes_[10].env_server, silent) << "it answers again, and has the fewest";
}

TEST_F(EnvLinesTest, another_life_of_a_server_is_noticed) {
  const std::string address = servers_[1].address();
  servers_[1] = std::move(*wire::Socket::listen(context_, "tcp://127.0.0.1:*", {"spare", 1, wire::kEveryRun}));
  // The port is free some moments after its socket has gone.
  const SystemClock clock;
  auto again = wire::Socket::listen(context_, address, {"env-1", 2, wire::kEveryRun});
  for (const Time limit = clock.now() + 20s; !again && clock.now() < limit;)
    again = wire::Socket::listen(context_, address, {"env-1", 2, wire::kEveryRun});
  ASSERT_TRUE(again) << again.error().to_string();
  servers_[1] = std::move(*again);
  std::optional<EnvLines::Heard> heard;
  for (const Time limit = clock.now() + 20s; !heard && clock.now() < limit;) {
    lines_->greet();
    if (const auto message = hear(1)) {
      wire::Outgoing welcome(message->id(), message->run());
      welcome.body().initWelcome();
      EXPECT_TRUE(servers_[1].send(message->sender(), welcome));
      heard = listen();
    }
  }
  ASSERT_TRUE(heard);
  EXPECT_EQ(heard->server, 1);
  EXPECT_TRUE(heard->new_life);
}

TEST_F(EnvLinesTest, an_episode_that_was_taken_over_goes_on_at_its_own_server) {
  AgentEpisode& e = episode(1);
  e.env_lease = 9;
  e.waiting = Waiting::kTools;
  EXPECT_FALSE(lines_->adopt(e, 3));
  ASSERT_TRUE(lines_->adopt(e, 2));
  lines_->ask(e);
  const auto call = hear(2);
  ASSERT_TRUE(call && call->body().isCall());
  EXPECT_EQ(call->body().getCall().getLease(), 9u);
}

TEST_F(EnvLinesTest, a_server_that_joins_gets_episodes) {
  for (uint64_t id = 1; id <= 3; ++id) lines_->ask(episode(id));
  add_server();
  ASSERT_TRUE(lines_->follow(directory_));
  lines_->ask(episode(4));
  EXPECT_EQ(episodes_[4].env_server, 3) << "it has the fewest";
}

TEST_F(EnvLinesTest, a_server_that_leaves_gets_no_episodes_and_keeps_those_that_have_begun) {
  for (uint64_t id = 1; id <= 6; ++id) lines_->ask(episode(id));
  std::vector<AgentEpisode*> there;
  for (auto& [id, e] : episodes_) {
    if (e.env_server == 1) there.push_back(&e);
  }
  ASSERT_EQ(there.size(), 2u);
  AgentEpisode &begun = *there[0], &waiting = *there[1];
  begun.env_lease = 5;
  begun.waiting = Waiting::kTools;
  while (hear(1)) {
  }
  directory_.remove({wire::Role::kEnv, 1});
  ASSERT_TRUE(lines_->follow(directory_));

  for (uint64_t id = 7; id <= 12; ++id) {
    lines_->ask(episode(id));
    EXPECT_NE(episodes_[id].env_server, 1);
  }
  EXPECT_TRUE(lines_->is_stranded(waiting));
  lines_->ask(waiting);
  EXPECT_NE(waiting.env_server, 1);
  lines_->ask(begun);
  EXPECT_EQ(begun.env_server, 1);
  const auto call = hear(1);
  ASSERT_TRUE(call && call->body().isCall());

  // The line outlives the last episode for a moment, in which the lease that it let go of gets there.
  lines_->release(begun);
  std::vector<wire::Socket*> sockets;
  lines_->add_sockets(sockets);
  EXPECT_EQ(sockets.size(), 3u);
  const auto released = hear(1);
  ASSERT_TRUE(released && released->body().isRelease());
  clock_.advance(10s);
  sockets.clear();
  lines_->add_sockets(sockets);
  EXPECT_EQ(sockets.size(), 2u);
  EXPECT_FALSE(lines_->adopt(begun, 1));
}

TEST_F(EnvLinesTest, a_server_that_comes_back_gets_episodes_though_it_was_silent_when_it_left) {
  lines_->ask(episode(1));
  const int server = *episodes_[1].env_server;
  const wire::Directory before = directory_;
  directory_.remove({wire::Role::kEnv, server});
  ASSERT_TRUE(lines_->follow(directory_));
  clock_.advance(6s);
  EXPECT_FALSE(lines_->is_one_silent()) << "nobody waits for one that has left";
  ASSERT_TRUE(lines_->follow(before));
  lines_->release(episodes_[1]);
  std::set<int> used;
  for (uint64_t id = 2; id <= 4; ++id) {
    lines_->ask(episode(id));
    used.insert(*episodes_[id].env_server);
  }
  EXPECT_TRUE(used.contains(server));
  clock_.advance(2s);
  EXPECT_TRUE(lines_->is_one_silent());
  answer_all();
  EXPECT_FALSE(lines_->is_one_silent());
}

TEST_F(EnvLinesTest, where_all_servers_have_left_episodes_wait_for_one_to_come) {
  const wire::Directory before = directory_;
  for (int rank = 0; rank < 3; ++rank) directory_.remove({wire::Role::kEnv, rank});
  ASSERT_TRUE(lines_->follow(directory_));
  AgentEpisode& e = episode(1);
  lines_->ask(e);
  EXPECT_EQ(e.request, 0u);
  EXPECT_GT(e.ask_at, clock_.now());
  EXPECT_FALSE(lines_->is_stranded(e));
  lines_->release(e);
  ASSERT_TRUE(lines_->follow(before));
  lines_->ask(e);
  EXPECT_NE(e.request, 0u);
}

TEST_F(EnvLinesTest, a_server_that_has_moved_is_asked_where_it_is_now) {
  AgentEpisode& e = episode(1);
  lines_->ask(e);
  const int server = *e.env_server;
  e.env_lease = 5;
  e.waiting = Waiting::kTools;
  add_server();
  ASSERT_TRUE(directory_.put({wire::Role::kEnv, server}, *directory_.find({wire::Role::kEnv, 3})));
  directory_.remove({wire::Role::kEnv, 3});
  ASSERT_TRUE(lines_->follow(directory_));
  lines_->ask(e);
  EXPECT_EQ(e.env_server, server);
  std::optional<wire::Incoming> call;
  for (int i = 0; i < 100 && !call; ++i) {
    if ((call = hear(3))) break;
    lines_->repeat(e);  // nothing goes to a server before there is a connection
  }
  ASSERT_TRUE(call && call->body().isCall());
}

}  // namespace
}  // namespace tandem::rollout
