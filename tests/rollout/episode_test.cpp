// The life of an episode in a rollout, step by step.
#include "rollout/episode.h"

#include <fmt/format.h>
#include <gtest/gtest.h>

#include "base/overloaded.h"

namespace tandem::rollout {
namespace {

using namespace std::chrono_literals;

constexpr EpisodeKey kKey{.episode = 5, .attempt = 2};
constexpr int kHere = 1;  // the server

std::string words_of(const Said& said) { return said.calls.empty() ? said.text : said.calls[0].call.name; }

std::string in_words(const Episode::Action& action) {
  return std::visit(
      Overloaded{
          [](const Episode::Acquire& a) { return fmt::format("acquire {}{}", a.ask, a.server ? " again" : ""); },
          [](const Episode::Call& a) { return fmt::format("call {} turn {} {}", a.ask, a.turn, words_of(a.said)); },
          [](const Episode::Score& a) { return fmt::format("score {} '{}'", a.ask, a.answer); },
          [](const Episode::Release& a) { return fmt::format("release {} at {}", a.sandbox, a.server); },
          [](const Episode::Open&) { return std::string("open"); },
          [](const Episode::Continue& a) {
            return "continue " + (a.reply.results.empty() ? a.reply.instruction : a.reply.results[0]);
          },
          [](const Episode::Resume&) { return std::string("resume"); },
          [](const Episode::EndSampling&) { return std::string("end sampling"); },
          [](const Episode::SendTrajectory&) { return std::string("trajectory"); },
          [](const Episode::SendCommit& a) { return fmt::format("commit {}", to_string(a.commit.outcome)); },
          [](const Episode::HandOver& a) { return "hand over to " + a.thief; },
          [](const Episode::SendClaim&) { return std::string("claim"); },
          [](const Episode::Fork&) { return std::string("fork"); },
          [](const Episode::EndTrunk&) { return std::string("end trunk"); },
          [](const Episode::Note&) { return std::string("note"); },
          [](const Episode::Over& a) { return fmt::format("over {}", static_cast<int>(a.end)); }},
      action);
}

class EpisodeTest : public testing::Test {
 protected:
  using Words = std::vector<std::string>;

  static Episode::Settings settings() {
    return {.numerics_id = "n", .routes = {.layers = 1, .top_k = 1, .experts = 8}, .patience = 30s};
  }
  static LeaseTerms lease() { return {.key = kKey, .group = 3, .kind = "echo", .min_version = 2, .max_version = 4}; }

  Words step(const Episode::Event& event) { return step(*episode_, event); }
  Words step(Episode& episode, const Episode::Event& event) {
    Words words;
    for (const auto& action : episode.step(event, now_)) {
      words.push_back(in_words(action));
      if (const auto* commit = std::get_if<Episode::SendCommit>(&action)) commit_ = commit->commit;
      if (const auto* handed = std::get_if<Episode::HandOver>(&action)) handover_ = handed->handover;
      if (const auto* acquire = std::get_if<Episode::Acquire>(&action)) ask_ = acquire->ask;
      if (const auto* call = std::get_if<Episode::Call>(&action)) ask_ = call->ask;
      if (const auto* score = std::get_if<Episode::Score>(&action)) ask_ = score->ask;
    }
    return words;
  }
  Words tick_after(Duration duration) {
    now_ += duration;
    return step(Episode::Tick{3});
  }
  Episode::Began began(uint64_t sandbox = 9) const {
    return {
        .server = kHere, .sandbox = sandbox, .opening = {.messages = {{"user", "do"}}, .tools = {}}, .max_turns = 2};
  }
  Episode::Called called() const { return {.ask = ask_, .results = {"done"}, .instruction = {}}; }
  Episode::Called heard() const { return {.ask = ask_, .results = {}, .instruction = {}}; }  // of an answer
  static Said a_call(std::string name = "a call") {
    return {.calls = {{.call = {.name = std::move(name), .arguments = Json::object()}}}};
  }
  static Said an_answer() { return {.text = "the answer"}; }
  // A new episode, as far as one wait and no further.
  void reach(Waiting waiting) {
    episode_.emplace(lease(), settings(), now_);
    if (waiting == Waiting::kWeights) return;
    ASSERT_EQ(step(Episode::Tick{3}), Words{"acquire 1"});
    step(Episode::Asked{ask_, kHere});
    if (waiting == Waiting::kSandbox) return;
    ASSERT_EQ(step(began()), Words{"open"});
    step(Episode::TurnOpened{{1, 2, 3}});
    if (waiting == Waiting::kTokens) return;
    step(Episode::Sampled{7, -1, 3});
    step(Episode::TurnEnded{waiting == Waiting::kTools ? a_call() : an_answer(), false});
    if (waiting == Waiting::kTools) return;
    step(heard());
    if (waiting == Waiting::kGrade) return;
    step(Episode::Scored{.ask = ask_, .reward = 0.5, .terms = {{"files", 1}}});
    if (waiting == Waiting::kTrainer) return;
    step(Episode::Stored{kKey});
    ASSERT_EQ(episode_->waiting(), Waiting::kCoordinator);
  }

  Time now_ = Time{} + 1000s;
  std::optional<Episode> episode_{std::in_place, lease(), settings(), now_};
  uint64_t ask_ = 0;  // the newest
  Commit commit_;
  Handover handover_;
};

TEST_F(EpisodeTest, a_life_without_trouble) {
  reach(Waiting::kTools);
  EXPECT_EQ(step(called()), Words{"continue done"});
  step(Episode::TurnOpened{{4}});
  step(Episode::Sampled{8, -2, 4});
  EXPECT_EQ(step(Episode::TurnEnded{an_answer(), false}), Words{"call 3 turn 2 the answer"});
  EXPECT_EQ(step(heard()), (Words{"end sampling", "score 4 'the answer'"}));
  const Behaviour behaviour{.turns = 2, .calls = 1, .seconds = 0.5};
  EXPECT_EQ(step(Episode::Scored{.ask = ask_, .reward = 0.5, .terms = {{"files", 1}}, .behaviour = behaviour}),
            (Words{"release 9 at 1", "trajectory"}));
  now_ += 1s;
  EXPECT_EQ(step(Episode::Stored{kKey}), Words{"commit completed"});
  EXPECT_EQ(commit_.behaviour, behaviour);
  EXPECT_EQ(step(Episode::Committed{kKey}), (Words{"end sampling", "over 0"}));
  EXPECT_TRUE(episode_->is_over());

  EXPECT_EQ(commit_.key, kKey);
  EXPECT_EQ(commit_.reward, 0.5);
  EXPECT_EQ(commit_.terms.at("files"), 1);
  EXPECT_EQ(commit_.first_version, 3u);
  EXPECT_EQ(commit_.last_version, 4u);
  EXPECT_EQ(commit_.turns, 2u);
  EXPECT_EQ(commit_.tool_calls, 1u);
  EXPECT_EQ(commit_.prompt_tokens, 3u);
  EXPECT_EQ(commit_.sampled_tokens, 2u);
  EXPECT_EQ(commit_.seconds, 1);
  EXPECT_EQ(episode_->trajectory().tokens, (std::vector<int32_t>{1, 2, 3, 7, 4, 8}));
  EXPECT_EQ(episode_->trajectory().numerics_id, "n");
  EXPECT_EQ(episode_->trajectory().group, 3u);
}

TEST_F(EpisodeTest, it_waits_for_its_weights_and_gives_up_where_they_are_gone) {
  EXPECT_EQ(step(Episode::Tick{1}), Words{});
  EXPECT_EQ(step(Episode::Tick{5}), (Words{"note", "end sampling", "commit infra_error"}));
  EXPECT_EQ(commit_.reason, "its weights 4 are gone, 5 are here");
  EXPECT_EQ(commit_.first_version, 5u) << "of the engine, where nothing was sampled";
}

TEST_F(EpisodeTest, a_turn_that_is_cut_ends_it_truncated_without_an_answer) {
  reach(Waiting::kTokens);
  EXPECT_EQ(step(Episode::TurnEnded{an_answer(), true}), (Words{"end sampling", "score 2 ''"}));
  step(Episode::Scored{.ask = ask_, .reward = 0, .terms = {}});
  step(Episode::Stored{kKey});
  EXPECT_EQ(commit_.outcome, Outcome::kTruncated);
  EXPECT_EQ(commit_.reward, 0.0);
}

TEST_F(EpisodeTest, calls_of_the_last_turn_that_the_task_allows_are_run_and_then_it_is_graded) {
  reach(Waiting::kTools);
  step(called());
  step(Episode::TurnEnded{a_call("another call"), false});
  EXPECT_EQ(step(called()), (Words{"end sampling", "score 4 ''"}));
  step(Episode::Scored{.ask = ask_, .reward = 1, .terms = {}});
  step(Episode::Stored{kKey});
  EXPECT_EQ(commit_.outcome, Outcome::kTruncated);
}

TEST_F(EpisodeTest, a_task_that_ends_on_what_calls_did_is_graded_as_completed) {
  reach(Waiting::kTools);
  Episode::Called over = called();
  over.is_over = true;
  EXPECT_EQ(step(over), (Words{"end sampling", "score 3 ''"}));
  step(Episode::Scored{.ask = ask_, .reward = 1, .terms = {}});
  step(Episode::Stored{kKey});
  EXPECT_EQ(commit_.outcome, Outcome::kCompleted);
}

TEST_F(EpisodeTest, an_answer_that_ends_a_step_of_the_task_is_followed_by_the_next_instruction) {
  reach(Waiting::kTokens);
  step(Episode::TurnEnded{an_answer(), false});
  Episode::Called next = heard();
  next.instruction = "now this";
  EXPECT_EQ(step(next), Words{"continue now this"});
}

TEST_F(EpisodeTest, a_summary_is_no_turn_and_the_episode_goes_on_from_it_in_a_segment_of_its_own) {
  reach(Waiting::kTools);
  EXPECT_EQ(step(called()), Words{"continue done"});
  step(Episode::TurnOpened{.tokens = {4}, .asks_for_summary = true});
  EXPECT_TRUE(episode_->is_summarising());
  EXPECT_EQ(episode_->compactions(), 0u);
  step(Episode::Sampled{8, -2, 3});
  EXPECT_EQ(step(Episode::TurnEnded{{.text = "I looked"}, false}), (Words{"end sampling", "open"}));
  EXPECT_EQ(episode_->compactions(), 1u) << "what the next segment is opened with depends on it";
  EXPECT_FALSE(episode_->is_summarising());
  step(Episode::TurnOpened{{1, 2, 5}});
  EXPECT_EQ(episode_->turn_tokens().size(), 0u) << "the summary is of the segment before";
  step(Episode::Sampled{9, -3, 4});
  EXPECT_EQ(step(Episode::TurnEnded{an_answer(), false}), Words{"call 3 turn 2 the answer"}) << "the second message";
  step(heard());
  step(Episode::Scored{.ask = ask_, .reward = 1, .terms = {}});
  step(Episode::Stored{kKey});
  EXPECT_EQ(episode_->trajectory().tokens, (std::vector<int32_t>{1, 2, 3, 7, 4, 8, 1, 2, 5, 9}));
  EXPECT_EQ(episode_->trajectory().later_segments, (std::vector<uint32_t>{6}));
  EXPECT_EQ(commit_.compactions, 1u);
  EXPECT_EQ(commit_.turns, 2u);
  EXPECT_EQ(commit_.sampled_tokens, 3u);
  EXPECT_EQ(commit_.prompt_tokens, 3u) << "of the opening";
}

TEST_F(EpisodeTest, a_summary_that_is_cut_or_empty_and_one_that_finds_no_room_truncate) {
  for (const auto& [words, is_cut] : {std::pair("I lo", true), {"", false}}) {
    reach(Waiting::kTools);
    step(called());
    step(Episode::TurnOpened{.tokens = {4}, .asks_for_summary = true});
    step(Episode::Sampled{8, -2, 3});
    EXPECT_EQ(step(Episode::TurnEnded{{.text = words}, is_cut}), (Words{"end sampling", "score 3 ''"}));
    EXPECT_TRUE(episode_->trajectory().later_segments.empty());
  }
  reach(Waiting::kTools);
  step(called());
  step(Episode::TurnOpened{.tokens = {4}, .asks_for_summary = true});
  step(Episode::TurnEnded{{.text = "long"}, false});
  EXPECT_EQ(step(Episode::TurnRefused{Status::exhausted("full")}).back(), "score 3 ''");
  EXPECT_TRUE(episode_->trajectory().later_segments.empty()) << "no segment is empty";
  EXPECT_EQ(episode_->compactions(), 0u);
}

TEST_F(EpisodeTest, one_that_is_being_summed_up_goes_on_with_its_summary_elsewhere) {
  reach(Waiting::kTokens);
  step(Episode::TurnEnded{an_answer(), false});
  Episode::Called next = heard();
  next.instruction = "now this";
  step(next);
  step(Episode::TurnOpened{.tokens = {4}, .asks_for_summary = true});
  step(Episode::Sampled{8, -2, 3});
  step(Episode::Stolen{"there"});
  Episode taken(handover_, settings(), now_);
  step(taken, Episode::Tick{3});
  step(taken, Episode::Ours{kKey, 1});
  EXPECT_EQ(step(taken, Episode::Tick{3}), Words{"resume"});
  EXPECT_TRUE(taken.is_summarising());
  EXPECT_EQ(step(taken, Episode::TurnEnded{{.text = "I looked"}, false}), (Words{"end sampling", "open"}));
  EXPECT_EQ(taken.opening().messages, episode_->opening().messages);
  EXPECT_EQ(taken.instruction(), "now this");
}

TEST_F(EpisodeTest, a_server_that_does_not_answer_every_call_has_failed) {
  reach(Waiting::kTools);
  EXPECT_EQ(step(heard()), (Words{"note", "end sampling", "release 9 at 1", "commit infra_error"}));
  EXPECT_EQ(commit_.reason, "the environment server answered 0 of 1 calls");
}

TEST_F(EpisodeTest, turns_that_the_template_writes_with_other_tokens_are_counted_and_go_along) {
  reach(Waiting::kTools);
  step(called());
  step(Episode::TurnOpened{.tokens = {4}, .is_retokenised = true});
  step(Episode::TurnEnded{a_call(), false});
  step(Episode::Stolen{"there"});
  EXPECT_EQ(handover_.retokenised_turns, 1u);
}

TEST_F(EpisodeTest, a_context_without_room_for_the_next_turn_truncates_and_without_room_for_the_prompt_fails) {
  reach(Waiting::kTools);
  step(called());
  EXPECT_EQ(step(Episode::TurnRefused{Status::exhausted("full")}), (Words{"end sampling", "score 3 ''"}));

  reach(Waiting::kSandbox);
  step(began());
  EXPECT_EQ(step(Episode::TurnRefused{Status::exhausted("full")}),
            (Words{"note", "end sampling", "release 9 at 1", "commit infra_error"}));
}

TEST_F(EpisodeTest, what_the_environment_does_not_answer_is_asked_once_more_and_then_fails) {
  const std::pair<Waiting, std::string> asked[] = {{Waiting::kSandbox, "acquire 1 again"},
                                                   {Waiting::kTools, "call 2 turn 1 a call"},
                                                   {Waiting::kGrade, "score 3 'the answer'"}};
  for (const auto& [waiting, words] : asked) {
    SCOPED_TRACE(to_string(waiting));
    reach(waiting);
    EXPECT_EQ(tick_after(29s), Words{});
    EXPECT_EQ(tick_after(1s), Words{words});
    EXPECT_EQ(tick_after(29s), Words{});
    EXPECT_EQ(tick_after(1s).back(), "commit infra_error");
    EXPECT_EQ(commit_.reason, "the environment server did not answer within 60 s");
    EXPECT_FALSE(commit_.reward);
  }
}

TEST_F(EpisodeTest, what_trainer_and_coordinator_do_not_acknowledge_is_sent_again) {
  reach(Waiting::kTrainer);
  EXPECT_EQ(tick_after(1s), Words{});
  EXPECT_EQ(tick_after(1s), Words{"trajectory"});
  EXPECT_EQ(step(Episode::Committed{kKey}), Words{}) << "nothing was committed";
  EXPECT_EQ(step(Episode::Stored{{.episode = 5, .attempt = 1}}), Words{}) << "of an earlier attempt";
  step(Episode::Stored{kKey});
  EXPECT_EQ(step(Episode::Stored{kKey}), Words{});
  EXPECT_EQ(tick_after(2s), Words{"commit completed"});
}

TEST_F(EpisodeTest, answers_to_earlier_asks_and_second_answers_change_nothing) {
  reach(Waiting::kTools);
  const Episode::Called first = called();
  step(first);
  EXPECT_EQ(step(first), Words{});
  step(Episode::TurnEnded{a_call("another call"), false});
  EXPECT_EQ(step(first), Words{});
  EXPECT_EQ(step(Episode::Refused{first.ask, Status::not_found("gone")}), Words{});
  EXPECT_EQ(episode_->waiting(), Waiting::kTools);
}

TEST_F(EpisodeTest, a_sandbox_that_nobody_waits_for_is_released_and_its_own_is_not) {
  reach(Waiting::kTokens);
  EXPECT_EQ(step(began(9)), Words{}) << "the same again";
  EXPECT_EQ(step(began(8)), Words{"release 8 at 1"});

  reach(Waiting::kSandbox);
  const Episode::Began late = began();
  EXPECT_EQ(step(Episode::ServerSilent{kHere}), Words{"acquire 2"});
  step(Episode::Asked{ask_, 2});
  EXPECT_EQ(step(late), Words{"release 9 at 1"});

  step(Episode::Revoked{kKey});
  Episode::Began last = began();
  last.server = 2;
  EXPECT_EQ(step(last), Words{"release 9 at 2"}) << "after its end";
}

TEST_F(EpisodeTest, where_there_is_no_room_another_server_is_asked_and_where_there_is_none_it_waits) {
  reach(Waiting::kSandbox);
  const auto full = [&](bool is_elsewhere) {
    return step(Episode::Refused{ask_, Status::exhausted("full"), is_elsewhere});
  };
  EXPECT_EQ(full(true), Words{"acquire 2"});
  step(Episode::Asked{ask_, 2});
  EXPECT_EQ(full(false), Words{});
  EXPECT_EQ(tick_after(400ms), Words{});
  EXPECT_EQ(tick_after(100ms), Words{"acquire 3"});
  EXPECT_EQ(step(Episode::Asked{ask_, {}}), Words{}) << "all have left";
  EXPECT_EQ(tick_after(500ms), Words{"acquire 4"});
  step(Episode::Asked{ask_, 2});
  EXPECT_EQ(full(false), Words{});
  EXPECT_EQ(tick_after(60s), Words{"acquire 5"});
  step(Episode::Asked{ask_, 2});
  EXPECT_EQ(full(true), (Words{"note", "end sampling", "commit infra_error"}));
}

TEST_F(EpisodeTest, what_a_former_life_of_a_server_was_asked_its_next_life_is_asked_at_once) {
  reach(Waiting::kTools);
  EXPECT_EQ(step(Episode::ServerRestarted{2}), Words{});
  EXPECT_EQ(step(Episode::ServerRestarted{kHere}), Words{"call 2 turn 1 a call"});
  EXPECT_EQ(step(Episode::Refused{ask_, Status::not_found("no lease 9")}).back(), "commit infra_error");
  reach(Waiting::kTools);
  EXPECT_EQ(step(Episode::Refused{ask_, Status::cancelled("another episode broke it")}).back(), "commit cancelled");
  EXPECT_EQ(commit_.reason, "another episode broke it");
}

TEST_F(EpisodeTest, an_episode_whose_server_is_lost_ends_at_once_and_one_without_a_sandbox_goes_elsewhere) {
  for (const Waiting waiting : {Waiting::kTokens, Waiting::kTools, Waiting::kGrade}) {
    reach(waiting);
    EXPECT_EQ(step(Episode::ServerLost{2}), Words{});
    EXPECT_EQ(step(Episode::ServerLost{kHere}).back(), "commit infra_error") << to_string(waiting);
    EXPECT_EQ(commit_.reason, "env-1 is lost, and its sandbox with it");
  }
  reach(Waiting::kSandbox);
  EXPECT_EQ(step(Episode::ServerLost{kHere}), Words{"acquire 2"});
  for (const Waiting waiting : {Waiting::kWeights, Waiting::kTrainer, Waiting::kCoordinator}) {
    reach(waiting);
    EXPECT_EQ(step(Episode::ServerLost{kHere}), Words{}) << to_string(waiting);
  }
}

TEST_F(EpisodeTest, only_what_is_tokens_and_a_sandbox_goes_to_another_rollout) {
  for (const Waiting waiting : {Waiting::kWeights, Waiting::kSandbox, Waiting::kTools}) {
    reach(waiting);
    EXPECT_EQ(step(Episode::Stolen{"there"}), Words{"hand over to there"}) << to_string(waiting);
    EXPECT_EQ(episode_->waiting(), Waiting::kHandedOver);
    EXPECT_EQ(handover_.sandbox.has_value(), waiting == Waiting::kTools);
    EXPECT_EQ(step(Episode::Gone{kKey, 1}), (Words{"end sampling", "over 2"})) << "the sandbox is the other's now";
  }
  for (const Waiting waiting : {Waiting::kGrade, Waiting::kTrainer, Waiting::kCoordinator}) {
    reach(waiting);
    EXPECT_EQ(step(Episode::Stolen{"there"}), Words{}) << to_string(waiting);
  }
}

TEST_F(EpisodeTest, one_that_is_being_sampled_goes_on_after_the_same_tokens_elsewhere) {
  reach(Waiting::kTokens);
  step(Episode::Sampled{7, -1, 3, 0, {4, 5, 6}});
  EXPECT_EQ(step(Episode::Stolen{"there"}), (Words{"end sampling", "hand over to there"}));
  EXPECT_TRUE(handover_.is_sampling);
  EXPECT_EQ(handover_.trajectory.routes.recorded, (std::vector<uint8_t>{1, 1, 1, 0}));
  EXPECT_EQ(step(Episode::Sampled{8, -1, 3}), Words{}) << "of a pass that was under way";
  Episode taken(handover_, settings(), now_);
  EXPECT_EQ(step(taken, Episode::Tick{3}), Words{"claim"});
  step(taken, Episode::Ours{kKey, 1});
  EXPECT_EQ(step(taken, Episode::Tick{1}), Words{}) << "this rollout is younger than the lease";
  EXPECT_EQ(step(taken, Episode::Tick{3}), Words{"resume"});
  EXPECT_EQ(taken.trajectory().tokens, (std::vector<int32_t>{1, 2, 3, 7}));
  EXPECT_EQ(taken.turn_tokens().size(), 1u);
  // Its engine computes all tokens again, by newer weights, and tells all routes; those that are known stay.
  step(taken, Episode::Sampled{8, -2, 4, 0, {1, 1, 1, 7}});
  EXPECT_EQ(taken.trajectory().routes.ids, (std::vector<uint8_t>{4, 5, 6, 7, 0}));
  EXPECT_EQ(taken.trajectory().routes.recorded, (std::vector<uint8_t>{1, 1, 1, 1, 0}));
  EXPECT_EQ(step(taken, Episode::TurnEnded{an_answer(), false}), Words{"call 1 turn 1 the answer"});
  EXPECT_EQ(taken.trajectory().versions, (std::vector<uint64_t>{0, 0, 0, 3, 4}));
  EXPECT_EQ(step(Episode::Gone{kKey, 1}), (Words{"end sampling", "over 2"})) << "the sandbox is the other's now";
}

TEST_F(EpisodeTest, one_that_is_being_sampled_and_that_nobody_claims_or_that_could_not_be_sent_goes_on_here) {
  for (const bool sent : {false, true}) {
    reach(Waiting::kTokens);
    step(Episode::Sampled{7, -1, 3});
    step(Episode::Stolen{"there"});
    if (sent) {
      EXPECT_EQ(tick_after(5s), Words{"claim"});
    }
    EXPECT_EQ(sent ? step(Episode::Ours{kKey, 1}) : step(Episode::NotHandedOver{}), Words{"resume"});
    EXPECT_EQ(episode_->trajectory().tokens, (std::vector<int32_t>{1, 2, 3, 7}));
    step(Episode::Sampled{8, -1, 3});
    EXPECT_EQ(step(Episode::TurnEnded{a_call(), false}), Words{"call 2 turn 1 a call"});
  }
}

TEST_F(EpisodeTest, one_that_is_taken_twice_in_the_middle_of_a_turn_still_is) {
  reach(Waiting::kTokens);
  step(Episode::Sampled{7, -1, 3});
  step(Episode::Stolen{"there"});
  Episode taken(handover_, settings(), now_);
  step(taken, Episode::Tick{1});
  step(taken, Episode::Ours{kKey, 1});
  EXPECT_EQ(step(taken, Episode::Stolen{"elsewhere"}), Words{"hand over to elsewhere"});
  EXPECT_TRUE(handover_.is_sampling);
  EXPECT_EQ(handover_.steals, 2u);
}

TEST_F(EpisodeTest, what_nobody_claims_is_claimed_back_and_asked_again) {
  reach(Waiting::kTools);
  const Episode::Called late = called();
  step(Episode::Stolen{"there"});
  EXPECT_EQ(step(late), Words{});
  EXPECT_EQ(tick_after(4s), Words{});
  EXPECT_EQ(tick_after(1s), Words{"claim"});
  EXPECT_EQ(tick_after(2s), Words{"claim"}) << "it does not go on by itself";
  EXPECT_EQ(step(Episode::Ours{kKey, 2}), Words{}) << "of another claim";
  EXPECT_EQ(step(Episode::Ours{kKey, 1}), Words{"call 3 turn 1 a call"});
  EXPECT_EQ(step(Episode::Ours{kKey, 1}), Words{});
  EXPECT_EQ(step(called()), Words{"continue done"});
}

TEST_F(EpisodeTest, an_offer_that_was_taken_back_is_void_and_an_old_word_of_its_end_changes_nothing) {
  reach(Waiting::kTools);
  step(Episode::Stolen{"there"});
  Episode late(handover_, settings(), now_);
  tick_after(5s);
  step(Episode::Ours{kKey, 1});
  EXPECT_EQ(step(late, Episode::Tick{3}), Words{"claim"});
  EXPECT_EQ(late.lease().claims, 0u);
  EXPECT_EQ(step(late, Episode::Gone{kKey, 1}), (Words{"end sampling", "over 2"})) << "the sandbox is not its own";
  EXPECT_EQ(step(Episode::Gone{kKey, 1}), Words{}) << "since then it has come back";
  step(Episode::Stolen{"there"});
  EXPECT_EQ(handover_.lease.claims, 1u);
}

TEST_F(EpisodeTest, what_could_not_be_sent_goes_on_as_if_nobody_had_asked_for_it) {
  reach(Waiting::kTools);
  step(Episode::Stolen{"there"});
  EXPECT_EQ(step(Episode::NotHandedOver{}), Words{});
  EXPECT_EQ(step(called()), Words{"continue done"});
}

TEST_F(EpisodeTest, a_sandbox_that_it_got_after_it_was_taken_back_is_released_when_it_is_another_rollouts) {
  reach(Waiting::kSandbox);
  step(Episode::Stolen{"there"});
  EXPECT_EQ(tick_after(5s), Words{"claim"});
  EXPECT_EQ(step(Episode::Ours{kKey, 1}), Words{"acquire 2"});
  step(Episode::Asked{ask_, kHere});
  step(began());
  EXPECT_EQ(step(Episode::Gone{kKey, 2}), (Words{"end sampling", "release 9 at 1", "over 2"}));
}

TEST_F(EpisodeTest, an_episode_that_was_taken_over_is_claimed_and_its_turn_is_answered_again) {
  reach(Waiting::kTools);
  step(Episode::Stolen{"there"});
  Episode taken(handover_, settings(), now_);
  EXPECT_EQ(taken.server(), kHere);
  EXPECT_EQ(step(taken, Episode::Tick{3}), Words{"claim"});
  now_ += 2s;
  EXPECT_EQ(step(taken, Episode::Tick{3}), Words{"claim"});
  step(taken, Episode::Ours{kKey, 1});
  EXPECT_EQ(step(taken, Episode::Tick{1}), Words{}) << "this rollout is younger than the lease";
  EXPECT_EQ(step(taken, Episode::Tick{3}), Words{"call 1 turn 1 a call"});
  EXPECT_EQ(step(taken, called()), Words{"continue done"});
  step(taken, Episode::TurnOpened{{4}});
  EXPECT_EQ(taken.trajectory().tokens, (std::vector<int32_t>{1, 2, 3, 7, 4}));
  step(taken, Episode::TurnEnded{an_answer(), true});
  step(taken, Episode::Scored{.ask = ask_, .reward = 0, .terms = {}});
  step(taken, Episode::Stored{kKey});
  EXPECT_EQ(commit_.steals, 1u);
  EXPECT_EQ(commit_.turns, 2u);
  EXPECT_EQ(commit_.prompt_tokens, 3u);
}

TEST_F(EpisodeTest, a_lease_that_is_lost_ends_it_anywhere_and_lets_go_of_the_sandbox) {
  for (int waiting = 0; waiting <= static_cast<int>(Waiting::kCoordinator); ++waiting) {
    reach(static_cast<Waiting>(waiting));
    EXPECT_EQ(step(Episode::Revoked{{.episode = 5, .attempt = 1}}), Words{});
    const bool has_sandbox = Waiting::kTokens <= episode_->waiting() && episode_->waiting() <= Waiting::kGrade;
    const Words words = step(Episode::Revoked{kKey});
    EXPECT_EQ(words,
              has_sandbox ? (Words{"end sampling", "release 9 at 1", "over 1"}) : (Words{"end sampling", "over 1"}));
    EXPECT_EQ(step(Episode::Revoked{kKey}), Words{});
    EXPECT_EQ(tick_after(100s), Words{});
  }
}

}  // namespace
}  // namespace tandem::rollout
