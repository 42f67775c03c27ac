#include "rollout/members.h"

#include <gmock/gmock.h>

namespace tandem::rollout {
namespace {

using namespace std::chrono_literals;
using testing::ElementsAre;
using wire::Peer;
using wire::Role;

class MembersTest : public testing::Test {
 protected:
  static wire::Directory topology() {
    wire::Directory directory;
    EXPECT_TRUE(directory.put({Role::kTrainer, 0}, {.address = *wire::Address::parse("ipc:///t"), .host = "local"}));
    EXPECT_TRUE(directory.put({Role::kEnv, 0}, {.address = *wire::Address::parse("ipc:///e"), .host = "local"}));
    return directory;
  }
  Members::Joined join(Peer peer, uint64_t epoch, const std::string& address = "") {
    const auto joined = members_.join(
        {.peer = peer, .epoch = epoch, .pid = 7, .address = address, .host = address.empty() ? "" : "far"}, now_, 0);
    EXPECT_TRUE(joined) << joined.error().to_string();
    return joined.value_or(Members::Joined::kOutdated);
  }
  const wire::Directory::Entry* listed(Peer peer) const { return members_.directory().find(peer); }

  Members members_{topology()};
  Time now_ = Time{} + 1h;
};

TEST_F(MembersTest, who_has_not_introduced_itself_is_not_heard) {
  EXPECT_EQ(members_.hear({Role::kTrainer, 0}, 1, now_), nullptr);
  EXPECT_EQ(join({Role::kTrainer, 0}, 1), Members::Joined::kNew);
  ASSERT_NE(members_.hear({Role::kTrainer, 0}, 1, now_), nullptr);
  EXPECT_EQ(members_.hear({Role::kTrainer, 0}, 2, now_), nullptr) << "another life";
  EXPECT_EQ(join({Role::kTrainer, 0}, 1), Members::Joined::kAgain);
  EXPECT_EQ(join({Role::kTrainer, 0}, 2), Members::Joined::kNew);
}

TEST_F(MembersTest, a_former_life_is_not_heard_beside_the_present_one) {
  join({Role::kRollout, 0}, 2, "ipc:///new");
  const uint64_t version = members_.directory().version();
  EXPECT_EQ(join({Role::kRollout, 0}, 1, "ipc:///old"), Members::Joined::kOutdated);
  EXPECT_EQ(members_.hear({Role::kRollout, 0}, 1, now_), nullptr);
  EXPECT_NE(members_.hear({Role::kRollout, 0}, 2, now_), nullptr);
  EXPECT_EQ(members_.directory().version(), version);
  EXPECT_EQ(listed({Role::kRollout, 0})->address.text(), "ipc:///new");
}

TEST_F(MembersTest, the_directory_has_what_the_topology_said_and_then_what_members_say) {
  EXPECT_EQ(listed({Role::kTrainer, 0})->epoch, 0u);
  join({Role::kTrainer, 0}, 3);
  EXPECT_EQ(listed({Role::kTrainer, 0})->epoch, 3u);
  EXPECT_EQ(listed({Role::kTrainer, 0})->address.text(), "ipc:///t");
  EXPECT_EQ(listed({Role::kTrainer, 0})->host, "local");
  join({Role::kTrainer, 1}, 1);  // says no address, and nobody knows one
  EXPECT_TRUE(members_.knows({Role::kTrainer, 1}));
  EXPECT_EQ(listed({Role::kTrainer, 1}), nullptr);
  join({Role::kEnv, 1}, 1, "tcp://10.0.0.5:1");
  EXPECT_EQ(listed({Role::kEnv, 1})->host, "far");

  const uint64_t version = members_.directory().version();
  EXPECT_FALSE(
      members_.join({.peer = {Role::kEnv, 2}, .epoch = 1, .pid = 1, .address = "nowhere", .host = ""}, now_, 0));
  EXPECT_FALSE(members_.knows({Role::kEnv, 2}));
  EXPECT_EQ(members_.directory().version(), version);
}

TEST_F(MembersTest, the_silent_stay_listed_where_they_are_started_again_and_go_where_not) {
  join({Role::kEnv, 0}, 1);
  join({Role::kEnv, 1}, 1, "ipc:///joined");
  join({Role::kTrainer, 0}, 1);
  now_ += 5s;
  EXPECT_NE(members_.hear({Role::kTrainer, 0}, 1, now_), nullptr);
  now_ += 5s;
  EXPECT_THAT(members_.lose_silent(now_, 8s), ElementsAre(Peer{Role::kEnv, 0}, Peer{Role::kEnv, 1}));
  EXPECT_THAT(members_.lose_silent(now_, 8s), ElementsAre()) << "each is lost once";
  EXPECT_NE(listed({Role::kEnv, 0}), nullptr);
  EXPECT_EQ(listed({Role::kEnv, 1}), nullptr);
  EXPECT_EQ(members_.hear({Role::kEnv, 1}, 1, now_), nullptr) << "it must introduce itself again";
  EXPECT_EQ(join({Role::kEnv, 1}, 1, "ipc:///joined"), Members::Joined::kNew);
  EXPECT_NE(listed({Role::kEnv, 1}), nullptr);
}

TEST_F(MembersTest, who_leaves_is_heard_until_it_is_gone) {
  join({Role::kEnv, 0}, 1);
  members_.leave({Role::kEnv, 0});
  EXPECT_EQ(listed({Role::kEnv, 0}), nullptr);
  EXPECT_NE(members_.hear({Role::kEnv, 0}, 1, now_), nullptr);
  join({Role::kEnv, 0}, 2);  // its next life is where the topology says
  EXPECT_EQ(listed({Role::kEnv, 0})->address.text(), "ipc:///e");
  EXPECT_EQ(members_.report(now_)["env-0"]["epoch"], 2);

  join({Role::kEnv, 1}, 1, "ipc:///joined");
  members_.leave({Role::kEnv, 1});
  now_ += 10s;
  EXPECT_THAT(members_.lose_silent(now_, 8s), ElementsAre(Peer{Role::kEnv, 0})) << "who has left is not lost";
  EXPECT_FALSE(members_.knows({Role::kEnv, 1}));
}

}  // namespace
}  // namespace tandem::rollout
