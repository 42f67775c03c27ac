// A conversation that is summed up: what the model is asked in each family's format, and what it goes on from.
#include "rollout/agent/compaction.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "rollout/agent/retelling.h"
#include "rollout/books/trajectory.h"
#include "tests/rollout/conversations_fixture.h"

namespace tandem::rollout {
namespace {

using testing::HasSubstr;

const envs::Compaction kCompaction{
    .at = 100, .most = 2, .request = "Sum up what you did.", .heading = "Your summary so far:"};

TEST(Compactions, are_due_beyond_their_tokens_and_as_often_as_is_said) {
  EXPECT_FALSE(is_compaction_due(kCompaction, 100, 0));
  EXPECT_TRUE(is_compaction_due(kCompaction, 101, 0));
  EXPECT_TRUE(is_compaction_due(kCompaction, 101, 1));
  EXPECT_FALSE(is_compaction_due(kCompaction, 101, 2));
  EXPECT_FALSE(is_compaction_due({}, 1'000'000, 0)) << "off";
}

TEST(Compactions, the_summary_stands_behind_the_task_and_a_later_instruction_behind_it) {
  const envs::Opening opening{.messages = {{"system", "s"}, {"user", "Do it."}}, .tools = Json::array()};
  EXPECT_EQ(opening_after(opening, kCompaction, "I looked.", "").messages,
            (std::vector<envs::Message>{{"system", "s"}, {"user", "Do it.\n\nYour summary so far:\nI looked."}}));
  EXPECT_EQ(opening_after(opening, kCompaction, "I looked.", "Now this.").messages.back().content,
            "Do it.\n\nYour summary so far:\nI looked.\n\nNow this.");
}

TEST(Compactions, draws_of_a_later_segment_are_others_than_those_of_the_first_at_its_positions) {
  EXPECT_EQ(seed_of_segment(7, 0), 7u);
  EXPECT_NE(seed_of_segment(7, 1), 7u);
  EXPECT_NE(seed_of_segment(7, 1), seed_of_segment(7, 2));
  EXPECT_NE(seed_of_segment(7, 1), seed_of_segment(8, 1));
}

// Behind the results of calls, in the format of each family, whatever its template takes there.
TEST_F(Conversations, of_every_family_are_summed_up_on_request) {
  size_t families = 0;
  for (const Json& golden : golden_conversations()) {
    SCOPED_TRACE(golden["template"].get<std::string>());
    const auto conversation = load(golden);
    ASSERT_TRUE(conversation) << conversation.error().to_string();
    const envs::Opening opening = opening_of(golden);
    std::vector<envs::Call> calls;
    calls.push_back({.name = golden["tools"][0]["function"]["name"].get<std::string>(), .arguments = Json::object()});
    const auto turn = conversation->spoken(calls, "", golden["tools"]);
    ASSERT_TRUE(turn) << turn.error().to_string();
    const Said said = conversation->read(*turn, golden["tools"]);
    ASSERT_EQ(said.calls.size(), 1u);
    const auto asked = ask_for_summary(*conversation, kCompaction, *turn, said,
                                       {.results = {"RESULT"}, .instruction = {}}, golden["tools"]);
    ASSERT_TRUE(asked) << asked.error().to_string();
    const auto text = conversation->tokenizer().decode(asked->tokens);
    EXPECT_THAT(text, HasSubstr("RESULT"));
    EXPECT_LT(text.find("RESULT"), text.find(kCompaction.request));
    EXPECT_THAT(text, HasSubstr(kCompaction.request));
    const auto next = conversation->prompt(opening_after(opening, kCompaction, "I looked.", ""));
    ASSERT_TRUE(next) << next.error().to_string();
    EXPECT_THAT(conversation->tokenizer().decode(*next), HasSubstr("Your summary so far:\nI looked."));
    ++families;

    // The whole as it is recorded, told as messages again.
    auto summary = *conversation->tokenizer().encode("I looked.", model::AddSpecial::kNo);
    summary.push_back(conversation->end_tokens().front());
    Trajectory all;
    const auto say = [&](std::span<const int32_t> tokens) {
      for (const int32_t token : tokens) all.append_sampled(token, -1, 0);
    };
    all.append(*conversation->prompt(opening));
    say(*turn);
    all.append(asked->tokens);
    say(summary);
    all.begin_segment();
    all.append(*next);
    say(*turn);
    const auto told = retell_segments(*conversation, kCompaction, opening, all.tokens, all.sampled, all.later_segments);
    ASSERT_TRUE(told) << told.error().to_string();
    ASSERT_EQ(told->size(), 2u);
    ASSERT_EQ(told->front().turns.size(), 2u);
    const Reply& reply = told->front().turns[0].reply;
    EXPECT_EQ(reply.results, (std::vector<std::string>{"RESULT"}));
    EXPECT_EQ(reply.instruction, kCompaction.request);
    EXPECT_EQ(told->front().turns[1].said.text, "I looked.");
    EXPECT_THAT(told->back().opening.messages.back().content, HasSubstr("Your summary so far:\nI looked."));
    EXPECT_EQ(told->back().turns.size(), 1u);
    envs::Compaction other = kCompaction;
    other.request = "Say it shorter.";
    const auto refused = retell_segments(*conversation, other, opening, all.tokens, all.sampled, all.later_segments);
    EXPECT_FALSE(refused);
    EXPECT_THAT(refused.error().to_string(), HasSubstr("segment 1"));
  }
  EXPECT_GE(families, 7u);
}

TEST_F(Conversations, a_summary_is_what_was_said_beside_calls_or_the_calls_as_they_stand) {
  const Json golden = golden_conversations().front();
  const auto conversation = load(golden);
  ASSERT_TRUE(conversation) << conversation.error().to_string();
  const auto tokens = [&](const std::string& text) {
    auto ids = *conversation->tokenizer().encode(text, model::AddSpecial::kNo);
    ids.push_back(conversation->end_tokens().front());
    return ids;
  };
  EXPECT_EQ(summary_in(*conversation, tokens("  I looked.\n"), golden["tools"]), "I looked.");
  EXPECT_EQ(summary_in(*conversation, tokens("<tool_call>{\"name\": \"x\"}</tool_call>"), golden["tools"]),
            "<tool_call>{\"name\": \"x\"}</tool_call>");
  EXPECT_EQ(summary_in(*conversation, tokens(" "), golden["tools"]), "");
}

}  // namespace
}  // namespace tandem::rollout
