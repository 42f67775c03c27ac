// Episodes that begin as one: who plays the trunk, what the others take over, and what they do without it.
#include <fmt/format.h>
#include <gtest/gtest.h>

#include "rollout/episode.h"

namespace tandem::rollout {
namespace {

using namespace std::chrono_literals;

constexpr int kServer = 1;

// One episode with what it wants done, by hand.
class Branching {
 public:
  // Number `number` of a family that begins with 10 and parts after `turn` turns.
  explicit Branching(uint64_t number, uint32_t turn = 1, uint64_t min_version = 0)
      : episode(LeaseTerms{.key = {number, 1},
                           .group = 3,
                           .kind = "echo",
                           .sample_seed = number * 100,
                           .min_version = min_version,
                           .max_version = 9,
                           .trunk = TrunkTerms{.family = 10, .seed = 1000, .turn = turn}},
                Episode::Settings{.numerics_id = "n", .patience = 30s}, now) {}

  template <typename Action>
  const Action* did() const {
    for (const auto& action : actions) {
      if (const auto* found = std::get_if<Action>(&action)) return found;
    }
    return nullptr;
  }
  void step(const Episode::Event& event) {
    actions = episode.step(event, now);
    if (const auto* acquire = did<Episode::Acquire>()) ask = acquire->ask;
    if (const auto* call = did<Episode::Call>()) ask = call->ask;
    if (const auto* score = did<Episode::Score>()) ask = score->ask;
  }
  void tick() { step(Episode::Tick{3}); }
  void begin(uint64_t sandbox) {
    tick();
    step(Episode::Asked{ask, kServer});
    step(Episode::Began{
        .server = kServer, .sandbox = sandbox, .opening = {.messages = {{"user", "do"}}, .tools = {}}, .max_turns = 5});
    step(Episode::TurnOpened{{1, 2, 3}});
  }
  // A turn with a call, up to what the environment is asked.
  void call(int32_t token) {
    step(Episode::Sampled{token, -1, 3});
    step(Episode::TurnEnded{{.calls = {{.call = {.name = "call", .arguments = Json::object()}}}}, false});
  }
  void called() { step(Episode::Called{.ask = ask, .results = {"done"}, .instruction = {}}); }
  void answer(int32_t token) {
    step(Episode::Sampled{token, -1, 3});
    step(Episode::TurnEnded{{.text = "the answer"}, false});
    step(Episode::Called{.ask = ask, .results = {}, .instruction = {}});
  }
  Commit end() {
    step(Episode::Scored{.ask = ask, .reward = 1, .terms = {}});
    step(Episode::Stored{episode.key()});
    const auto* commit = did<Episode::SendCommit>();
    EXPECT_NE(commit, nullptr);
    return commit != nullptr ? commit->commit : Commit{};
  }

  Time now = Time{} + 1000s;
  Episode episode;
  std::vector<Episode::Action> actions;
  uint64_t ask = 0;
};

TEST(EpisodeBranches, go_on_from_the_trunk_each_by_its_own_seed) {
  Branching first(10), second(11);
  second.step(Episode::TrunkTaken{});
  EXPECT_EQ(second.episode.waiting(), Waiting::kTrunk);
  first.begin(7);
  EXPECT_EQ(first.episode.seed(), 1000u);
  first.call(5);
  first.called();
  const auto* fork = first.did<Episode::Fork>();
  ASSERT_NE(fork, nullptr);
  EXPECT_EQ(first.episode.waiting(), Waiting::kBranches);
  const Handover trunk = fork->trunk;

  second.step(Episode::Forked{trunk});
  const auto* acquire = second.did<Episode::Acquire>();
  ASSERT_NE(acquire, nullptr);
  ASSERT_TRUE(acquire->from.has_value());
  EXPECT_EQ(acquire->server, kServer);
  EXPECT_EQ(acquire->from->sandbox, 7u);
  EXPECT_EQ(acquire->from->turn, 1u);
  EXPECT_TRUE(second.episode.is_branching());
  second.step(Episode::Began{.server = kServer, .sandbox = 8, .opening = {}, .max_turns = 5});
  EXPECT_FALSE(second.episode.is_branching());
  // The turn's calls are answered once more, in the sandbox of the branch.
  const auto* call = second.did<Episode::Call>();
  ASSERT_NE(call, nullptr);
  EXPECT_EQ(call->sandbox, 8u);
  EXPECT_EQ(call->turn, 1u);
  second.called();
  EXPECT_NE(second.did<Episode::Continue>(), nullptr);
  EXPECT_EQ(second.episode.seed(), 1100u);
  second.step(Episode::TurnOpened{{4}});
  second.answer(6);
  const Commit of_second = second.end();
  EXPECT_EQ(of_second.turns, 2u);
  EXPECT_EQ(of_second.tool_calls, 1u);
  EXPECT_EQ(of_second.sampled_tokens, 2u);
  EXPECT_EQ(of_second.branch_turn, 1u);
  EXPECT_EQ(of_second.inherited_tokens, 1u);
  EXPECT_EQ(of_second.inherited_calls, 1u);
  EXPECT_EQ(second.episode.trajectory().tokens, (std::vector<int32_t>{1, 2, 3, 5, 4, 6}));
  EXPECT_EQ(second.episode.trajectory().trunk, (SharedTrunk{.family = 10, .tokens = 4}));

  first.step(Episode::BranchesBegun{});
  ASSERT_NE(first.did<Episode::Call>(), nullptr);
  first.called();
  EXPECT_NE(first.did<Episode::Continue>(), nullptr);
  first.step(Episode::TurnOpened{{4}});
  first.answer(9);
  const Commit of_first = first.end();
  EXPECT_EQ(of_first.tool_calls, 1u);
  EXPECT_EQ(of_first.inherited_tokens, 0u);
  EXPECT_EQ(first.episode.trajectory().trunk, second.episode.trajectory().trunk);
}

TEST(EpisodeBranches, begin_by_themselves_where_the_trunk_ends_before_its_turn) {
  Branching first(10, 2), second(11, 2);
  second.step(Episode::TrunkTaken{});
  first.begin(7);
  first.answer(5);
  EXPECT_NE(first.did<Episode::EndTrunk>(), nullptr);
  ASSERT_NE(first.did<Episode::Score>(), nullptr);  // it is the family's first: what it drew is its own
  const Commit commit = first.end();
  EXPECT_EQ(commit.branch_turn, 0u);
  EXPECT_EQ(first.episode.trajectory().trunk, SharedTrunk{});

  second.step(Episode::TrunkEnded{});
  second.begin(8);
  EXPECT_EQ(second.episode.seed(), 1100u);
  second.answer(6);
  EXPECT_EQ(second.end().branch_turn, 0u);
}

TEST(EpisodeBranches, tried_again_alone_draw_the_trunk_again) {
  Branching second(11);
  second.begin(8);
  EXPECT_EQ(second.episode.seed(), 1000u);
  second.call(5);
  second.called();
  ASSERT_NE(second.did<Episode::Fork>(), nullptr);
  second.step(Episode::BranchesBegun{});
  second.called();
  EXPECT_EQ(second.episode.seed(), 1100u);
  second.step(Episode::TurnOpened{{4}});
  second.answer(6);
  const Commit commit = second.end();
  EXPECT_EQ(commit.branch_turn, 1u);
  EXPECT_EQ(commit.inherited_tokens, 0u);
  EXPECT_EQ(second.episode.trajectory().trunk, (SharedTrunk{.family = 10, .tokens = 4}));
}

// What it drew was another episode's, which has it.
TEST(EpisodeBranches, tried_again_alone_begin_anew_where_the_trunk_ends_before_its_turn) {
  Branching second(11, 3);
  second.begin(8);
  second.answer(5);
  EXPECT_EQ(second.did<Episode::Score>(), nullptr);
  const auto* release = second.did<Episode::Release>();
  ASSERT_NE(release, nullptr);
  EXPECT_EQ(release->sandbox, 8u);
  EXPECT_EQ(second.episode.waiting(), Waiting::kWeights);
  second.begin(9);
  EXPECT_EQ(second.episode.seed(), 1100u);
  second.answer(6);
  EXPECT_EQ(second.end().sampled_tokens, 1u);
  EXPECT_EQ(second.episode.trajectory().tokens, (std::vector<int32_t>{1, 2, 3, 6}));
}

TEST(EpisodeBranches, whose_sandbox_cannot_be_had_play_the_trunk_themselves) {
  Branching first(10), second(11);
  second.step(Episode::TrunkTaken{});
  first.begin(7);
  first.call(5);
  first.called();
  second.step(Episode::Forked{first.did<Episode::Fork>()->trunk});
  second.step(Episode::Refused{second.ask, Status::not_found("no lease 7")});
  EXPECT_EQ(second.episode.waiting(), Waiting::kWeights);
  EXPECT_TRUE(second.episode.is_in_trunk());
  EXPECT_FALSE(second.episode.may_wait_for_trunk());
  EXPECT_FALSE(second.episode.is_branching());
  second.begin(8);
  EXPECT_EQ(second.episode.seed(), 1000u);
  EXPECT_EQ(second.episode.trajectory().tokens, (std::vector<int32_t>{1, 2, 3}));
}

// The books count on it: what was leased later is not older than that.
TEST(EpisodeBranches, of_a_lease_that_the_trunk_is_too_old_for_play_it_themselves) {
  Branching first(10), second(11, 1, 4);
  second.step(Episode::TrunkTaken{});
  first.begin(7);
  first.call(5);
  first.called();
  second.step(Episode::Forked{first.did<Episode::Fork>()->trunk});
  EXPECT_EQ(second.did<Episode::Acquire>(), nullptr);
  EXPECT_TRUE(second.episode.is_in_trunk());
  EXPECT_EQ(second.episode.waiting(), Waiting::kWeights);
}

TEST(EpisodeBranches, wait_for_room_at_the_server_of_the_trunk) {
  Branching first(10), second(11);
  second.step(Episode::TrunkTaken{});
  first.begin(7);
  first.call(5);
  first.called();
  second.step(Episode::Forked{first.did<Episode::Fork>()->trunk});
  second.step(Episode::Refused{second.ask, Status::exhausted("full"), true});
  EXPECT_EQ(second.did<Episode::Acquire>(), nullptr);
  second.now += 1s;
  second.tick();
  const auto* acquire = second.did<Episode::Acquire>();
  ASSERT_NE(acquire, nullptr);
  EXPECT_EQ(acquire->server, kServer);
  EXPECT_TRUE(acquire->from.has_value());
  second.step(Episode::ServerLost{kServer});
  EXPECT_TRUE(second.episode.is_in_trunk());
}

TEST(EpisodeBranches, that_nobody_plays_the_trunk_for_any_more_play_it) {
  Branching second(11);
  second.step(Episode::TrunkTaken{});
  second.tick();
  EXPECT_TRUE(second.actions.empty());
  second.step(Episode::TrunkFree{});
  second.tick();
  EXPECT_NE(second.did<Episode::Acquire>(), nullptr);
}

TEST(EpisodeBranches, are_handed_over_with_what_they_have_of_their_trunk) {
  Branching first(10), second(11);
  second.step(Episode::TrunkTaken{});
  second.step(Episode::Stolen{"thief"});
  EXPECT_EQ(second.episode.waiting(), Waiting::kTrunk);  // it would have to draw the trunk again elsewhere
  first.begin(7);
  first.call(5);
  first.called();
  second.step(Episode::Forked{first.did<Episode::Fork>()->trunk});
  second.step(Episode::Stolen{"thief"});
  EXPECT_EQ(second.did<Episode::HandOver>(), nullptr);
  second.step(Episode::Began{.server = kServer, .sandbox = 8, .opening = {}, .max_turns = 5});
  second.step(Episode::Stolen{"thief"});
  const auto* handed = second.did<Episode::HandOver>();
  ASSERT_NE(handed, nullptr);
  EXPECT_TRUE(handed->handover.is_past_trunk);
  const Episode taken(handed->handover, {.numerics_id = "n"}, Time{});
  EXPECT_FALSE(taken.is_in_trunk());
  EXPECT_EQ(taken.seed(), 1100u);
  EXPECT_EQ(taken.trajectory().trunk, (SharedTrunk{.family = 10, .tokens = 4}));
}

}  // namespace
}  // namespace tandem::rollout
