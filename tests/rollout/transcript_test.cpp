#include "rollout/agent/transcript.h"

#include <gtest/gtest.h>

namespace tandem::rollout {
namespace {

AgentRecord record() {
  AgentRecord record{.end = AgentEnd::kAnswered, .began = 1'700'000'000.25, .ended = 1'700'000'010};
  AgentRound look{.began = 1'700'000'001, .ended = 1'700'000'002.5};
  look.turn = {.text = "Looking.",
               .reasoning = "hm",
               .calls = {{{"grep", {{"pattern", "x"}}}, ""}, {{}, "Error: no JSON"}},
               .call_ids = {"c1", "c2"},
               .model = "m",
               .use = {.prompt = 10, .cached = 4, .completion = 2},
               .prompt_ids = {1, 2},
               .completion_ids = {3, 4},
               .logprobs = {-0.5f, -0.25f}};
  look.outcomes = {envs::ToolOutcome::done("a.txt:1:x\n"), envs::ToolOutcome::refused("Error: no JSON")};
  AgentRound answer{.began = 1'700'000'003, .ended = 1'700'000'004};
  answer.turn = {.text = "Done.", .model = "m", .use = {.prompt = 20, .cached = std::nullopt, .completion = 1}};
  record.rounds = {look, answer};
  return record;
}

Json written(const AgentRecord& record) {
  const std::vector<envs::Message> opening = {{"system", "You work."}, {"user", "Find x."}};
  return atif_of({.session_id = "s", .agent_version = "0.1", .model = "m"}, record, opening, envs::tool_schemas());
}

TEST(Transcript, has_the_fields_of_atif_in_steps_that_are_counted_from_one) {
  const auto atif = written(record());
  EXPECT_EQ(atif["schema_version"], "ATIF-v1.7");
  EXPECT_EQ(atif["session_id"], "s");
  EXPECT_EQ(atif["agent"]["name"], "tandem");
  EXPECT_EQ(atif["agent"]["tool_definitions"], envs::tool_schemas());
  ASSERT_EQ(atif["steps"].size(), 4u);
  const std::string sources[] = {"system", "user", "agent", "agent"};
  for (size_t i = 0; i < 4; ++i) {
    EXPECT_EQ(atif["steps"][i]["step_id"], i + 1);
    EXPECT_EQ(atif["steps"][i]["source"], sources[i]);
  }
  EXPECT_EQ(atif["steps"][0]["timestamp"], "2023-11-14T22:13:20.250Z");
  EXPECT_EQ(atif["final_metrics"], Json({{"total_prompt_tokens", 30},
                                         {"total_completion_tokens", 3},
                                         {"total_cached_tokens", 4},
                                         {"total_steps", 4}}));
  EXPECT_EQ(atif["extra"]["end"], "answered");
}

TEST(Transcript, a_turn_has_its_calls_their_results_and_the_tokens_that_were_sampled) {
  const auto step = written(record())["steps"][2];
  EXPECT_EQ(step["message"], "Looking.");
  EXPECT_EQ(step["reasoning_content"], "hm");
  EXPECT_EQ(step["tool_calls"][0],
            Json({{"tool_call_id", "c1"}, {"function_name", "grep"}, {"arguments", {{"pattern", "x"}}}}));
  EXPECT_EQ(step["tool_calls"][1]["arguments"], Json::object());
  EXPECT_EQ(step["observation"]["results"][0], Json({{"source_call_id", "c1"}, {"content", "a.txt:1:x\n"}}));
  EXPECT_EQ(step["observation"]["results"][1]["source_call_id"], "c2");
  EXPECT_EQ(step["metrics"], Json({{"prompt_tokens", 10},
                                   {"completion_tokens", 2},
                                   {"cached_tokens", 4},
                                   {"prompt_token_ids", {1, 2}},
                                   {"completion_token_ids", {3, 4}},
                                   {"logprobs", {-0.5, -0.25}}}));
  const auto answer = written(record())["steps"][3];
  EXPECT_FALSE(answer.contains("tool_calls") || answer.contains("observation"));
  EXPECT_FALSE(answer["metrics"].contains("completion_token_ids"));
}

TEST(Transcript, what_did_not_come_to_its_end_says_so) {
  auto cut = record();
  cut.end = AgentEnd::kFailed;
  cut.why = Status::unavailable("no server");
  cut.rounds[0].outcomes.resize(1);
  const auto atif = written(cut);
  EXPECT_EQ(atif["extra"], Json({{"end", "failed"}, {"error", "no server"}}));
  EXPECT_EQ(atif["steps"][2]["observation"]["results"].size(), 1u);
}

}  // namespace
}  // namespace tandem::rollout
