// Drafts change no token and no bit: engines with and without say the same, whatever is drafted.
#include <gtest/gtest.h>

#include <map>

#include "base/random.h"
#include "kernels/attention.h"
#include "rollout/engine/draft_model.h"
#include "tests/model/constraint_parts.h"
#include "tests/model/late_executor.h"
#include "tests/model/small_families.h"
#include "tests/model/tiny_weights.h"
#include "tests/repetitions.h"

namespace tandem::rollout::drafting_tests {
namespace {

using model::tiny_weights;
using Weights = std::shared_ptr<const model::Weights>;

// An engine whose passes all take the same time, so that any draft is worth its rows.
Engine engine_of(const Weights& weights, EngineSettings settings, Speculation speculation, int depth = 1) {
  settings.speculation = speculation;
  const auto make = [&](const model::ExecutorSettings& room) -> Result<std::unique_ptr<model::Executor>> {
    auto cpu = TRY(model::make_cpu_executor(weights, TRY(kernels::Stream::cpu(2)), room));
    return std::make_unique<model::LateExecutor>(std::move(cpu), depth, 0.01);
  };
  return std::move(*Engine::create(weights->config(), 0, make, settings));
}

// Passes of the small model cost a tenth of those of the large one.
std::shared_ptr<DraftModel> draft_model_of(const Weights& weights, int slots, int max_tokens = 256) {
  const auto make = [&](const model::ExecutorSettings& room) -> Result<std::unique_ptr<model::Executor>> {
    auto cpu = TRY(model::make_cpu_executor(weights, TRY(kernels::Stream::cpu(1)), room));
    return std::make_unique<model::LateExecutor>(std::move(cpu), 1, 0.001);
  };
  return std::make_shared<DraftModel>(
      std::move(*Engine::create(weights->config(), 0, make, {.slots = slots, .max_tokens = max_tokens})));
}

Weights weights_of(model::ModelConfig config, uint64_t seed, float scale) {
  auto weights = std::make_shared<model::Weights>(std::move(*model::Weights::create(std::move(config), false)));
  model::randomise(*weights, seed);
  for (auto& value : weights->flat()) value = kernels::to_bf16(kernels::to_float(value) * scale);
  auto stream = std::move(*kernels::Stream::cpu(2));
  EXPECT_TRUE(weights->pack(stream));
  return weights;
}

std::vector<int32_t> random_tokens(Random& random, size_t length, int vocabulary = 150) {
  std::vector<int32_t> tokens(length);
  for (auto& token : tokens) token = static_cast<int32_t>(random.below(vocabulary));
  return tokens;
}

// All that is said of a token, but for what the prediction has to do with it.
struct Token {
  int32_t token = 0;
  float logprob = 0, sampling_logprob = 0;
  bool turn_ended = false;
  TurnEnd end = TurnEnd::kStop;
  std::vector<model::TokenLogprob> top;
  friend bool operator==(const Token&, const Token&) = default;
};
using Said = std::map<SequenceId, std::vector<Token>>;

void step(Engine& engine, Said& said) {
  const auto sampled = engine.step();
  ASSERT_TRUE(sampled) << sampled.error().message();
  for (const auto& t : *sampled)
    said[t.sequence].push_back({t.token, t.logprob, t.sampling_logprob, t.turn_ended, t.end, t.top});
}
Said run(Engine& engine) {
  Said said;
  while (!engine.idle() && !testing::Test::HasFailure()) step(engine, said);
  return said;
}

std::vector<int32_t> tokens_of(const std::vector<Token>& said) {
  std::vector<int32_t> tokens;
  for (const auto& t : said) tokens.push_back(t.token);
  return tokens;
}

// A text with some of its tokens changed, left out, or put in.
std::vector<int32_t> edited(Random& random, std::span<const int32_t> text, uint64_t one_in) {
  std::vector<int32_t> out;
  for (const int32_t token : text) {
    const uint64_t dice = random.below(one_in * 3);
    if (dice == 0) continue;
    if (dice == 1) out.push_back(static_cast<int32_t>(random.below(150)));
    out.push_back(dice == 2 ? static_cast<int32_t>(random.below(150)) : token);
  }
  return out;
}

struct Request {
  std::vector<int32_t> prompt;
  TurnRequest turn;
};

// Sampling, limits and what else a turn can ask for, at random.
Request random_request(Random& random, uint64_t seed) {
  Request request{.prompt = random_tokens(random, 5 + random.below(90)), .turn = {}};
  auto& turn = request.turn;
  turn.max_new_tokens = 1 + static_cast<int>(random.below(70));
  turn.seed = seed;
  turn.sampling.temperature = random.below(3) == 0 ? 0 : 0.3f * static_cast<float>(random.below(4));
  if (random.below(3) == 0) turn.sampling.top_k = 1 + static_cast<int>(random.below(20));
  if (random.below(3) == 0) turn.sampling.top_p = 0.9f;
  if (random.below(2) == 0) turn.stop_tokens = {3, 77};
  if (random.below(4) == 0) turn.min_new_tokens = 10;
  if (random.below(4) == 0) turn.bias = {{5, 4.0f}, {3, 2.0f}};
  if (random.below(4) == 0) turn.frequency_penalty = 0.5f;
  if (random.below(5) == 0) turn.presence_penalty = -0.4f;
  if (random.below(3) == 0) turn.top_logprobs = 3;
  return request;
}

Said said_by(Engine& engine, std::span<const Request> requests) {
  for (size_t i = 0; i < requests.size(); ++i) EXPECT_TRUE(engine.add(i, requests[i].prompt, requests[i].turn));
  return run(engine);
}

void compare(const Weights& weights, uint64_t seed, const EngineSettings& settings, int depth) {
  Random random(seed);
  std::vector<Request> requests;
  for (uint64_t i = 0; i < 6; ++i) requests.push_back(random_request(random, seed * 100 + i));
  auto plain = engine_of(weights, {.slots = 6, .max_tokens = 256}, Speculation::kOff);
  const Said expected = said_by(plain, requests);
  EXPECT_EQ(plain.counters().drafted_tokens, 0u);
  // What is predicted is right, somewhat, or not at all.
  for (size_t i = 0; i < requests.size(); ++i) {
    const auto right = tokens_of(expected.at(i));
    requests[i].turn.prediction = i % 3 == 0   ? right
                                  : i % 3 == 1 ? edited(random, right, 6)
                                               : random_tokens(random, 1 + random.below(40));
  }
  auto drafting = engine_of(weights, settings, Speculation::kNgram, depth);
  EXPECT_EQ(said_by(drafting, requests), expected);
  EXPECT_LE(drafting.counters().accepted_tokens, drafting.counters().drafted_tokens);
  // A small model that is never wrong, one that always is, and one whose sequences are shorter.
  const auto other = weights_of(weights->config(), seed + 1000, 4);
  for (const auto& [small, longest] : {std::pair(weights, 256), {other, 256}, {weights, 100}}) {
    auto with_model = engine_of(weights, settings, Speculation::kNgram, depth);
    with_model.draft_with(draft_model_of(small, settings.slots, longest));
    EXPECT_EQ(said_by(with_model, requests), expected) << (small == weights ? "right" : "wrong") << " " << longest;
  }
}

TEST(Speculation, changes_no_token_whatever_is_drafted_sampled_and_beside) {
  for (uint64_t seed = 1; seed <= static_cast<uint64_t>(repetitions(6, 60)); ++seed) {
    const auto weights = tiny_weights(seed);
    for (const EngineSettings settings : {EngineSettings{.slots = 6, .max_tokens = 256},
                                          {.slots = 1, .max_tokens = 256},
                                          {.slots = 3, .max_tokens = 256, .prefill_tokens = 13, .prefill_beside = 5},
                                          {.slots = 6, .pages = 5, .max_tokens = 256}}) {
      for (const int depth : {1, 3}) {
        SCOPED_TRACE(testing::Message() << "seed " << seed << ", " << settings.slots << " slots, " << settings.pages
                                        << " pages, depth " << depth);
        compare(weights, seed, settings, depth);
        if (HasFailure()) return;
      }
    }
  }
}

TEST(Speculation, changes_no_token_of_any_family) {
  for (const auto& family : model::small_families()) {
    SCOPED_TRACE(family.name);
    compare(weights_of(family.config, 3, 4), 50, {.slots = 4, .max_tokens = 200, .prefill_tokens = 32}, 1);
  }
}

TEST(Speculation, a_right_prediction_saves_most_passes) {
  const auto weights = tiny_weights(4);
  Random random(1);
  Request request{random_tokens(random, 40), {.max_new_tokens = 150, .seed = 8}};
  auto plain = engine_of(weights, {.slots = 1, .max_tokens = 256}, Speculation::kOff);
  const auto expected = said_by(plain, {&request, 1});
  EXPECT_EQ(plain.counters().steps, 150u);
  request.turn.prediction = tokens_of(expected.at(0));
  for (const int depth : {1, 3}) {
    auto drafting = engine_of(weights, {.slots = 1, .max_tokens = 256}, Speculation::kNgram, depth);
    EXPECT_EQ(said_by(drafting, {&request, 1}), expected);
    EXPECT_LT(drafting.counters().steps, 20u) << depth;
    EXPECT_GT(drafting.counters().accepted_tokens, 130u) << depth;
  }
  // Off is off.
  auto off = engine_of(weights, {.slots = 1, .max_tokens = 256}, Speculation::kOff);
  EXPECT_EQ(said_by(off, {&request, 1}), expected);
  EXPECT_EQ(off.counters().drafted_tokens, 0u);
}

TEST(Speculation, a_draft_model_that_agrees_saves_most_passes_at_any_temperature) {
  const auto weights = tiny_weights(4);
  for (const float temperature : {0.0f, 1.0f}) {
    Random random(1);
    std::vector<Request> requests;
    for (uint64_t seed = 1; seed <= 3; ++seed)
      requests.push_back(
          {random_tokens(random, 40), {.max_new_tokens = 150, .sampling = {.temperature = temperature}, .seed = seed}});
    auto plain = engine_of(weights, {.slots = 3, .max_tokens = 256}, Speculation::kOff);
    const auto expected = said_by(plain, requests);
    for (const int depth : {1, 3}) {
      auto drafting = engine_of(weights, {.slots = 3, .max_tokens = 256}, Speculation::kNgram, depth);
      drafting.draft_with(draft_model_of(weights, 3));
      EXPECT_EQ(said_by(drafting, requests), expected);
      EXPECT_LT(drafting.counters().steps, 40u) << temperature << " " << depth;
      EXPECT_GT(drafting.counters().accepted_tokens, 300u) << temperature << " " << depth;
      for (uint64_t id = 0; id < requests.size(); ++id) drafting.release(id);
    }
    // One that is always wrong is hardly asked.
    auto wrong = engine_of(weights, {.slots = 3, .max_tokens = 256}, Speculation::kNgram);
    wrong.draft_with(draft_model_of(weights_of(weights->config(), 1004, 4), 3));
    EXPECT_EQ(said_by(wrong, requests), expected);
    EXPECT_LT(wrong.counters().drafted_tokens, 150u) << temperature;
  }
}

TEST(Speculation, a_sequence_goes_back_to_a_place_of_its_last_turn_and_says_what_it_would_have_said) {
  const auto weights = tiny_weights(2);
  Random random(5);
  const auto prompt = random_tokens(random, 60);
  const TurnRequest turn{.max_new_tokens = 90, .seed = 3};
  auto engine = engine_of(weights, {.slots = 2, .max_tokens = 256}, Speculation::kOff);
  ASSERT_TRUE(engine.add(1, prompt, turn));
  EXPECT_EQ(engine.rewind(1, 60).code(), Code::kNotFound) << "it is in a turn";
  const auto first = tokens_of(run(engine).at(1));
  EXPECT_EQ(engine.rewind(1, 59).code(), Code::kInvalid);
  EXPECT_EQ(engine.rewind(1, 151).code(), Code::kInvalid);
  EXPECT_EQ(engine.rewind(2, 60).code(), Code::kNotFound);
  // Others find the whole pages of what was said, and still do when it is taken back.
  auto whole = prompt;
  whole.insert(whole.end(), first.begin(), first.end());
  for (const int length : {140, 129, 128, 90, 64, 60}) {
    ASSERT_TRUE(engine.rewind(1, length)) << length;
    auto kept = std::vector(whole.begin(), whole.begin() + length);
    const std::vector<int32_t> more = {7, 8};
    ASSERT_TRUE(engine.extend(1, more, {.max_new_tokens = 5, .seed = 9}));
    kept.insert(kept.end(), more.begin(), more.end());
    auto fresh = engine_of(weights, {.slots = 2, .max_tokens = 256}, Speculation::kOff);
    ASSERT_TRUE(fresh.add(1, kept, {.max_new_tokens = 5, .seed = 9}));
    EXPECT_EQ(run(engine), run(fresh)) << length;
    ASSERT_TRUE(engine.add(2, whole, turn));
    ASSERT_TRUE(fresh.add(2, whole, turn));
    EXPECT_EQ(run(engine), run(fresh)) << length;
    engine.release(2);
    engine.release(1);
    ASSERT_TRUE(engine.add(1, prompt, turn));
    run(engine);
  }
}

// As where all that the small model guessed of it was right, and had not been tried.
TEST(Speculation, a_sequence_that_goes_back_and_gets_no_token_more_computes_no_prompt_again) {
  const auto weights = tiny_weights(2);
  Random random(5);
  const TurnRequest turn{.max_new_tokens = 90, .seed = 3};
  auto engine = engine_of(weights, {.slots = 2, .max_tokens = 512}, Speculation::kOff);
  auto whole = random_tokens(random, 300);
  ASSERT_TRUE(engine.add(1, whole, turn));
  const auto first = tokens_of(run(engine).at(1));
  whole.insert(whole.end(), first.begin(), first.end());
  for (const int length : {389, 384, 383, 320, 301, 300}) {
    ASSERT_TRUE(engine.rewind(1, length)) << length;
    const uint64_t before = engine.counters().prompt_tokens;
    ASSERT_TRUE(engine.extend(1, {}, turn));
    const auto again = run(engine).at(1);
    EXPECT_LE(engine.counters().prompt_tokens - before, static_cast<uint64_t>(kernels::kPageTokens)) << length;
    auto fresh = engine_of(weights, {.slots = 2, .max_tokens = 512}, Speculation::kOff);
    ASSERT_TRUE(fresh.add(1, {whole.begin(), whole.begin() + length}, turn));
    EXPECT_EQ(again, run(fresh).at(1)) << length;
    engine.release(1);
    ASSERT_TRUE(engine.add(1, {whole.begin(), whole.begin() + 300}, turn));
    run(engine);
  }
}

TEST(Speculation, text_that_repeats_itself_is_drafted_from_itself) {
  const auto weights = tiny_weights(4);
  Random random(1);
  Request request{random_tokens(random, 40),
                  {.max_new_tokens = 180, .sampling = {.temperature = 0}, .bias = {{50, 100}}}};
  auto plain = engine_of(weights, {.slots = 1, .max_tokens = 256}, Speculation::kOff);
  const auto expected = said_by(plain, {&request, 1});
  auto drafting = engine_of(weights, {.slots = 1, .max_tokens = 256}, Speculation::kNgram);
  EXPECT_EQ(said_by(drafting, {&request, 1}), expected);
  EXPECT_GT(drafting.counters().accepted_tokens, 60u);
  EXPECT_LT(drafting.counters().steps, 120u);
}

TEST(Speculation, a_draft_follows_a_grammar_token_by_token) {
  namespace constraint = model::constraint;
  const auto vocabulary = constraint::vocabulary();
  auto config = model::small_model("llama");
  config.vocabulary = static_cast<int>(vocabulary->mask_words()) * 64;
  const auto weights = weights_of(config, 9, 4);
  const auto grammar = constraint::compiled(*parse_json(
      R"({"type":"array","items":{"type":"object","properties":{"name":{"enum":["ab","abc"]},"age":{"enum":[1,2]}},
          "required":["name","age"],"additionalProperties":false},"minItems":6,"maxItems":8})"));
  for (const uint64_t seed : {1, 2, 3}) {
    Request request{{5, 6, 7, 8, 9},
                    {.max_new_tokens = 200,
                     .seed = seed,
                     .stop_tokens = {1},
                     .constraint = TurnConstraint{grammar, vocabulary},
                     .top_logprobs = 2}};
    auto plain = engine_of(weights, {.slots = 1, .max_tokens = 250}, Speculation::kOff);
    const auto expected = said_by(plain, {&request, 1});
    Random random(seed);
    for (const uint64_t one_in : {1000, 5, 2}) {
      request.turn.prediction = edited(random, tokens_of(expected.at(0)), one_in);
      for (const int depth : {1, 2}) {
        auto drafting = engine_of(weights, {.slots = 1, .max_tokens = 250}, Speculation::kNgram, depth);
        EXPECT_EQ(said_by(drafting, {&request, 1}), expected);
        EXPECT_GT(drafting.counters().accepted_tokens, 0u);
      }
    }
  }
}

TEST(Speculation, tokens_of_a_prediction_count_once_however_they_were_sampled) {
  const auto weights = tiny_weights(4);
  Random random(1);
  Request request{random_tokens(random, 40), {.max_new_tokens = 60, .seed = 8}};
  auto first = engine_of(weights, {.slots = 1, .max_tokens = 256}, Speculation::kOff);
  const auto right = tokens_of(said_by(first, {&request, 1}).at(0));
  const auto counted = [&](std::vector<int32_t> prediction, Speculation speculation) {
    auto engine = engine_of(weights, {.slots = 1, .max_tokens = 256}, speculation);
    request.turn.prediction = std::move(prediction);
    EXPECT_TRUE(engine.add(1, request.prompt, request.turn));
    int count = 0;
    while (!engine.idle()) {
      const auto sampled = engine.step();
      EXPECT_TRUE(sampled);
      for (const auto& token : *sampled) count += token.predicted;
    }
    return count;
  };
  auto half = right;
  half.resize(30);
  auto without_middle = right;
  without_middle.erase(without_middle.begin() + 20, without_middle.begin() + 40);
  for (const auto speculation : {Speculation::kOff, Speculation::kNgram}) {
    EXPECT_EQ(counted(right, speculation), 60);
    EXPECT_EQ(counted(half, speculation), 30);
    EXPECT_EQ(counted({}, speculation), 0);
    // Behind what the prediction lacks it is found again, after the few tokens by which it is found.
    EXPECT_GE(counted(without_middle, speculation), 35);
    EXPECT_LE(counted(without_middle, speculation), 40);
  }
}

TEST(Speculation, weights_that_change_and_sequences_that_go_leave_nothing_behind) {
  const auto weights = tiny_weights(4);
  Random random(1);
  for (const int depth : {1, 2, 3}) {
    auto drafting = engine_of(weights, {.slots = 2, .max_tokens = 256}, Speculation::kNgram, depth);
    const auto prompt = random_tokens(random, 40);
    ASSERT_TRUE(drafting.add(1, prompt, {.max_new_tokens = 100, .seed = 5, .prediction = prompt}));
    ASSERT_TRUE(drafting.add(2, prompt, {.max_new_tokens = 100, .sampling = {.temperature = 0}, .prediction = prompt}));
    Said said;
    for (int i = 0; i < 8; ++i) step(drafting, said);
    drafting.release(2);
    ASSERT_TRUE(drafting.add(2, prompt, {.max_new_tokens = 10, .seed = 7}));
    auto room = std::move(*drafting.stage_weights());
    ASSERT_TRUE(room->prepare(tiny_weights(11)->wire()));
    ASSERT_TRUE(drafting.swap_weights(std::move(room), 1));
    std::vector<SampledToken> all;
    while (!drafting.idle()) {
      const auto sampled = drafting.step();
      ASSERT_TRUE(sampled);
      for (const auto& token : *sampled) {
        if (token.sequence == 1) all.push_back(token);
      }
    }
    // From the first token of the new weights on it is what they alone would say.
    auto tokens = prompt;
    for (const auto& token : said[1]) tokens.push_back(token.token);
    size_t old = 0;
    while (all[old].version == 0) tokens.push_back(all[old++].token);
    auto fresh = engine_of(tiny_weights(11), {.slots = 2, .max_tokens = 256}, Speculation::kOff);
    ASSERT_TRUE(fresh.add(1, tokens, {.max_new_tokens = static_cast<int>(all.size() - old), .seed = 5}));
    const auto expected = run(fresh).at(1);
    for (size_t i = 0; i < expected.size(); ++i) {
      EXPECT_EQ(all[old + i].token, expected[i].token) << i;
      EXPECT_EQ(all[old + i].logprob, expected[i].logprob) << i;
    }
  }
}

TEST(Speculation, a_second_turn_is_drafted_from_the_first) {
  const auto weights = tiny_weights(4);
  Random random(6);
  const auto prompt = random_tokens(random, 40), more = random_tokens(random, 8);
  const auto play = [&](Speculation speculation) {
    auto engine = engine_of(weights, {.slots = 1, .max_tokens = 256}, speculation);
    EXPECT_TRUE(engine.add(1, prompt, {.max_new_tokens = 60, .sampling = {.temperature = 0}}));
    auto said = run(engine);
    EXPECT_TRUE(engine.extend(1, more, {.max_new_tokens = 60, .sampling = {.temperature = 0}}));
    const auto second = run(engine);
    for (const auto& token : second.at(1)) said[1].push_back(token);
    return said;
  };
  EXPECT_EQ(play(Speculation::kNgram), play(Speculation::kOff));
}

}  // namespace
}  // namespace tandem::rollout::drafting_tests
