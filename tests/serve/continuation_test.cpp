#include "serve/continuation.h"

#include <gtest/gtest.h>

#include <functional>

namespace tandem::serve {
namespace {

rollout::TurnRequest turn_of(int most, int least) {
  rollout::TurnRequest turn;
  turn.max_new_tokens = most;
  turn.min_new_tokens = least;
  turn.seed = 11;
  turn.stop_tokens = {2};
  turn.prediction = {7, 8, 9};
  turn.top_logprobs = 3;
  turn.bias = {{4, 1.5f}};
  return turn;
}

TEST(Continuation, the_rest_of_a_turn_begins_behind_what_was_said_with_the_same_seed) {
  const std::vector<int32_t> prompt = {1, 5, 6};
  const std::vector<rollout::SampledToken> said = {{.token = 7}, {.token = 3}};
  const auto rest = rest_of(prompt, turn_of(10, 5), said);
  // Draws go by seed and place in the whole sequence, so that the places are those of the turn that was lost.
  EXPECT_EQ(rest.prompt, (std::vector<int32_t>{1, 5, 6, 7, 3}));
  EXPECT_EQ(rest.request.seed, 11u);
  EXPECT_EQ(rest.request.max_new_tokens, 8);
  EXPECT_EQ(rest.request.min_new_tokens, 3);
  EXPECT_TRUE(rest.request.prediction.empty()) << "its first token was said already";
  EXPECT_EQ(rest.request.stop_tokens, (std::vector<int32_t>{2}));
  EXPECT_EQ(rest.request.top_logprobs, 3);
  EXPECT_EQ(rest.request.bias.size(), 1u);
  EXPECT_EQ(rest_of(prompt, turn_of(10, 1), said).request.min_new_tokens, 0);
}

TEST(Continuation, of_a_turn_that_said_nothing_the_rest_is_the_turn) {
  const std::vector<int32_t> prompt = {1, 5};
  const auto rest = rest_of(prompt, turn_of(10, 5), {});
  EXPECT_EQ(rest.prompt, prompt);
  EXPECT_EQ(rest.request.max_new_tokens, 10);
  EXPECT_EQ(rest.request.min_new_tokens, 5);
  EXPECT_EQ(rest.request.prediction.size(), 3u);
}

TEST(Continuation, what_counts_from_the_first_token_of_a_turn_is_refused_by_name) {
  const auto refusal = [](const std::function<void(Generation&)>& change) {
    Generation generation;
    change(generation);
    const Status status = check_continuable(generation);
    return status.ok() ? std::string() : status.message();
  };
  EXPECT_EQ(refusal([](Generation&) {}), "");
  EXPECT_EQ(refusal([](Generation& g) { g.n = 4, g.turn.top_logprobs = 5, g.turn.min_new_tokens = 3; }), "");
  EXPECT_NE(refusal([](Generation& g) { g.turn.constraint.emplace(); }).find("grammar"), std::string::npos);
  EXPECT_NE(refusal([](Generation& g) { g.turn.presence_penalty = 1; }).find("penalties"), std::string::npos);
  EXPECT_NE(refusal([](Generation& g) { g.turn.frequency_penalty = -1; }).find("penalties"), std::string::npos);
  EXPECT_NE(refusal([](Generation& g) { g.choice->routes = true; }).find("experts"), std::string::npos);
  EXPECT_NE(refusal([](Generation& g) { g.turn.prompt_logprobs = true; }).find("logprobs"), std::string::npos);
}

}  // namespace
}  // namespace tandem::serve
