#include "rollout/engine/engine.h"

#include <gtest/gtest.h>

#include <map>

#include "base/random.h"
#include "tests/model/late_executor.h"
#include "tests/model/tiny_weights.h"

namespace tandem::rollout {
namespace {

using model::tiny_weights;

Engine engine(const EngineSettings& settings, int threads = 2, uint64_t seed = 1) {
  return std::move(*Engine::create(tiny_weights(seed), 0, std::move(*kernels::Stream::cpu(threads)), settings));
}

// The same on a device that runs behind, for which `depth` plans are submitted before the first is collected.
Engine late_engine(const EngineSettings& settings, int depth, uint64_t seed = 1) {
  const auto weights = tiny_weights(seed);
  const auto make = [&](const model::ExecutorSettings& room) -> Result<std::unique_ptr<model::Executor>> {
    auto cpu = TRY(model::make_cpu_executor(weights, TRY(kernels::Stream::cpu(2)), room));
    return std::make_unique<model::LateExecutor>(std::move(cpu), depth);
  };
  return std::move(*Engine::create(weights->config(), 0, make, settings));
}

std::unique_ptr<model::StagedWeights> staged(Engine& engine, uint64_t seed) {
  auto room = std::move(*engine.stage_weights());
  const auto weights = tiny_weights(seed);
  EXPECT_TRUE(room->prepare(weights->wire()));
  return room;
}

std::vector<int32_t> prompt_of(int group, int length) {
  Random random(100 + group);
  std::vector<int32_t> prompt(length);
  for (auto& token : prompt) token = static_cast<int32_t>(random.below(200));
  return prompt;
}

struct Sampled {
  std::vector<int32_t> tokens;
  std::vector<float> logprobs;
  friend bool operator==(const Sampled&, const Sampled&) = default;
};

// Runs all sequences to the end of their turn.
std::map<SequenceId, Sampled> run(Engine& engine) {
  std::map<SequenceId, Sampled> said;
  while (!engine.idle()) {
    const auto sampled = engine.step();
    EXPECT_TRUE(sampled) << sampled.error().message();
    for (const auto& token : *sampled) {
      said[token.sequence].tokens.push_back(token.token);
      said[token.sequence].logprobs.push_back(token.logprob);
    }
  }
  return said;
}

TurnRequest turn(uint64_t seed) { return {.max_new_tokens = 40, .sampling = {}, .seed = seed, .stop_tokens = {3}}; }
// Ends at its limit, whatever the model says with the instruction set of this machine.
TurnRequest full_turn(uint64_t seed) { return {.max_new_tokens = 40, .sampling = {}, .seed = seed, .stop_tokens = {}}; }

std::map<SequenceId, Sampled> sample_groups(Engine& engine, bool reversed) {
  std::vector<int> order;
  for (int i = 0; i < 12; ++i) order.push_back(reversed ? 11 - i : i);
  for (const int i : order) EXPECT_TRUE(engine.add(i, prompt_of(i / 4, 70 + i / 4 * 30), turn(1000 + i)));
  return run(engine);
}

// What a turn with everything on says: of its prompt, and of each token that is sampled.
struct Scored {
  std::vector<PromptLogprob> prompt;
  std::vector<SampledToken> tokens;
};
Scored score(Engine& engine, SequenceId id) {
  Scored scored;
  while (!engine.idle()) {
    auto sampled = *engine.step();
    for (auto& token : sampled) {
      if (token.sequence != id) continue;
      if (scored.tokens.empty()) scored.prompt = token.prompt;
      scored.tokens.push_back(std::move(token));
    }
  }
  return scored;
}

TEST(Engine, logprobs_of_a_prompt_are_those_with_which_its_tokens_are_sampled) {
  auto first = engine({.slots = 4, .max_tokens = 256});
  ASSERT_TRUE(first.add(1, prompt_of(1, 30), turn(5)));
  const auto said = run(first).at(1);
  auto whole = prompt_of(1, 30);
  whole.insert(whole.end(), said.tokens.begin(), said.tokens.end());
  auto asked = turn(9);
  asked.prompt_logprobs = true;
  asked.prompt_top_logprobs = 3;
  asked.top_logprobs = 2;
  const auto check = [&](Engine& with) {
    // Others have computed the prompt before, and beside.
    ASSERT_TRUE(with.add(1, whole, turn(7)));
    run(with);
    ASSERT_TRUE(with.add(2, whole, turn(8)));
    ASSERT_TRUE(with.add(3, whole, asked));
    const auto scored = score(with, 3);
    ASSERT_EQ(scored.prompt.size(), whole.size() - 1);
    for (size_t i = 0; i < said.tokens.size(); ++i) EXPECT_EQ(scored.prompt[29 + i].logprob, said.logprobs[i]) << i;
    for (size_t at = 0; at < scored.prompt.size(); ++at) {
      const auto& [logprob, top] = scored.prompt[at];
      ASSERT_EQ(top.size(), 3u);
      EXPECT_GE(top[0].logprob, top[1].logprob);
      EXPECT_GE(top[1].logprob, top[2].logprob);
      for (const auto& one : top) {
        if (one.token == whole[at + 1]) {
          EXPECT_EQ(one.logprob, logprob);
        }
      }
      EXPECT_LE(logprob, top[0].logprob);
    }
    for (const auto& token : scored.tokens) {
      ASSERT_EQ(token.top.size(), 2u);
      for (const auto& one : token.top) {
        if (one.token == token.token) {
          EXPECT_EQ(one.logprob, token.logprob);
        }
      }
    }
  };
  auto plain = engine({.slots = 4, .max_tokens = 256, .prefill_tokens = 7});
  check(plain);
  auto late = late_engine({.slots = 4, .max_tokens = 256, .prefill_tokens = 7}, 3);
  check(late);
}

TEST(Engine, biases_and_penalties_choose_other_tokens_and_leave_logprobs_as_they_are) {
  for (const int depth : {1, 3}) {
    auto with = late_engine({.slots = 4, .max_tokens = 256}, depth);
    auto asked = turn(1);
    asked.stop_tokens.clear();
    asked.max_new_tokens = 20;
    asked.sampling.temperature = 0;
    asked.bias = {{50, 100}};
    ASSERT_TRUE(with.add(1, prompt_of(1, 20), asked));
    const auto biased = run(with).at(1);
    EXPECT_EQ(biased.tokens, std::vector<int32_t>(20, 50));
    EXPECT_LT(biased.logprobs[0], -1) << "the model's own, not that of the biased distribution";
    // Each time that it is said, another token costs 60 less to say.
    asked.bias = {{50, 100}, {51, 90}};
    asked.frequency_penalty = 60;
    ASSERT_TRUE(with.add(2, prompt_of(1, 20), asked));
    const auto penalised = run(with).at(2).tokens;
    EXPECT_EQ(std::vector(penalised.begin(), penalised.begin() + 4), (std::vector<int32_t>{50, 51, 50, 51}));
    asked.frequency_penalty = 0;
    asked.bias = {};
    asked.presence_penalty = 1000;
    ASSERT_TRUE(with.add(3, prompt_of(1, 20), asked));
    auto said = run(with).at(3).tokens;
    std::ranges::sort(said);
    EXPECT_EQ(std::adjacent_find(said.begin(), said.end()), said.end()) << "no token is said twice";
  }
}

TEST(Engine, a_turn_cannot_stop_before_its_least_tokens) {
  auto with = engine({.slots = 4, .max_tokens = 256});
  auto asked = turn(1);
  asked.bias = {{3, 200}};
  asked.min_new_tokens = 5;
  ASSERT_TRUE(with.add(1, prompt_of(1, 20), asked));
  const auto said = run(with).at(1).tokens;
  ASSERT_EQ(said.size(), 6u);
  EXPECT_EQ(said.back(), 3);
  asked.bias = {{5000, 1}};
  EXPECT_EQ(with.add(2, prompt_of(1, 20), asked).code(), Code::kInvalid);
}

TEST(Engine, samples_the_same_tokens_and_logprobs_whatever_slots_order_chunks_pages_and_threads) {
  auto reference_engine = engine({.slots = 12, .max_tokens = 256});
  const auto reference = sample_groups(reference_engine, false);
  ASSERT_EQ(reference.size(), 12u);
  EXPECT_NE(reference.at(0), reference.at(1)) << "siblings differ by their seeds";
  for (const EngineSettings settings : {EngineSettings{.slots = 1, .max_tokens = 256},
                                        {.slots = 3, .max_tokens = 256},
                                        {.slots = 12, .max_tokens = 256, .prefill_tokens = 13},
                                        {.slots = 12, .pages = 7, .max_tokens = 256}}) {
    for (const int threads : {1, 3}) {
      auto other = engine(settings, threads);
      EXPECT_EQ(sample_groups(other, threads == 3), reference)
          << settings.slots << " slots, " << settings.pages << " pages";
    }
  }
}

TEST(Engine, computes_the_prompt_of_a_group_once) {
  auto e = engine({.slots = 8, .max_tokens = 256});
  for (int i = 0; i < 8; ++i) ASSERT_TRUE(e.add(i, prompt_of(0, 150), turn(i)));
  run(e);
  // Each sibling computes only its last prompt token itself, whose logits it samples from.
  EXPECT_EQ(e.counters().shared_tokens, 7u * 149);
}

TEST(Engine, finds_again_what_a_sequence_computed_that_is_gone) {
  const auto e = std::make_unique<Engine>(engine({.slots = 2, .pages = 9, .max_tokens = 256}));
  ASSERT_TRUE(e->add(1, prompt_of(0, 150), turn(4)));
  const auto first = run(*e).at(1);
  e->release(1);
  ASSERT_TRUE(e->add(2, prompt_of(0, 150), turn(4)));
  EXPECT_EQ(run(*e).at(2), first);
  EXPECT_EQ(e->counters().shared_tokens, 128u) << "two whole pages";
  e->release(2);
  // Others need the room, and get it.
  for (int i = 0; i < 6; ++i) ASSERT_TRUE(e->add(10 + i, prompt_of(1 + i, 200), turn(i)));
  auto fresh = engine({.slots = 6, .max_tokens = 256});
  for (int i = 0; i < 6; ++i) ASSERT_TRUE(fresh.add(10 + i, prompt_of(1 + i, 200), turn(i)));
  EXPECT_EQ(run(*e), run(fresh));
  for (int i = 0; i < 6; ++i) e->release(10 + i);
  // Nothing of old weights is found under new ones.
  ASSERT_TRUE(e->swap_weights(staged(*e, 2), 1));
  const uint64_t shared = e->counters().shared_tokens;
  ASSERT_TRUE(e->add(3, prompt_of(1, 200), turn(4)));
  EXPECT_NE(run(*e).at(3), first);
  EXPECT_EQ(e->counters().shared_tokens, shared);
}

TEST(Engine, a_second_turn_is_what_one_long_prompt_would_have_been) {
  auto two_turns = engine({.slots = 4, .max_tokens = 256});
  ASSERT_TRUE(two_turns.add(1, prompt_of(0, 50), turn(9)));
  auto first = run(two_turns).at(1);
  const auto result = prompt_of(1, 20);
  ASSERT_TRUE(two_turns.extend(1, result, turn(9)));
  const auto second = run(two_turns).at(1);

  auto whole = prompt_of(0, 50);
  whole.insert(whole.end(), first.tokens.begin(), first.tokens.end());
  whole.insert(whole.end(), result.begin(), result.end());
  auto at_once = engine({.slots = 4, .max_tokens = 256});
  ASSERT_TRUE(at_once.add(5, whole, turn(9)));
  EXPECT_EQ(run(at_once).at(5), second);
}

TEST(Engine, after_a_swap_every_token_is_that_of_the_new_weights_alone) {
  auto e = engine({.slots = 4, .max_tokens = 256});
  ASSERT_TRUE(e.add(1, prompt_of(0, 50), full_turn(9)));
  std::vector<int32_t> tokens = prompt_of(0, 50);
  for (int i = 0; i < 5; ++i) {
    const auto sampled = *e.step();
    for (const auto& token : sampled) tokens.push_back(token.token);
  }
  ASSERT_TRUE(e.swap_weights(staged(e, 2), 7));
  const auto sampled = *e.step();
  ASSERT_EQ(sampled.size(), 1u);
  EXPECT_EQ(sampled[0].version, 7u);
  auto fresh = engine({.slots = 4, .max_tokens = 256}, 2, 2);
  ASSERT_TRUE(fresh.add(1, tokens, full_turn(9)));
  const auto expected = *fresh.step();
  EXPECT_EQ(sampled[0].token, expected[0].token);
  EXPECT_EQ(sampled[0].logprob, expected[0].logprob);
}

TEST(Engine, on_a_device_that_runs_behind_says_the_same) {
  auto reference_engine = engine({.slots = 12, .max_tokens = 256});
  const auto reference = sample_groups(reference_engine, false);
  for (const int depth : {1, 2, 4}) {
    for (const EngineSettings settings : {EngineSettings{.slots = 12, .max_tokens = 256},
                                          {.slots = 3, .max_tokens = 256, .prefill_tokens = 13},
                                          {.slots = 12, .pages = 7, .max_tokens = 256}}) {
      auto late = late_engine(settings, depth);
      EXPECT_EQ(sample_groups(late, depth == 2), reference)
          << depth << " ahead, " << settings.slots << " slots, " << settings.pages << " pages";
    }
  }
}

// Tokens that were planned behind the end of a turn, or of a sequence that is gone, are nobody's.
TEST(Engine, on_a_device_that_runs_behind_goes_on_with_turns_and_lets_sequences_go) {
  const auto play = [](Engine& e) {
    std::vector<Sampled> said;
    for (int i = 0; i < 3; ++i) EXPECT_TRUE(e.add(i, prompt_of(i, 30), turn(i)));
    said.push_back(run(e)[1]);
    // Sequence 0 is let go in the middle of its turn, and another by the same name comes at once.
    EXPECT_TRUE(e.extend(0, prompt_of(7, 5), turn(50)));
    for (int i = 0; i < 4; ++i) EXPECT_TRUE(e.step());
    e.release(0);
    EXPECT_TRUE(e.add(0, prompt_of(5, 70), turn(60)));
    EXPECT_TRUE(e.extend(1, prompt_of(8, 20), turn(70)));
    auto both = run(e);
    said.push_back(both[0]);
    said.push_back(both[1]);
    return said;
  };
  auto now = engine({.slots = 3, .max_tokens = 256});
  const auto expected = play(now);
  for (const int depth : {2, 3}) {
    auto late = late_engine({.slots = 3, .max_tokens = 256}, depth);
    EXPECT_EQ(play(late), expected) << depth;
  }
}

TEST(Engine, on_a_device_that_runs_behind_every_token_has_the_version_that_it_was_sampled_under) {
  auto e = late_engine({.slots = 2, .max_tokens = 256}, 3);
  ASSERT_TRUE(e.add(1, prompt_of(0, 50), full_turn(9)));
  std::vector<SampledToken> all;
  for (int i = 0; !e.idle(); ++i) {
    if (i == 6) {
      ASSERT_TRUE(e.swap_weights(staged(e, 2), 7));
    }
    const auto sampled = *e.step();
    all.insert(all.end(), sampled.begin(), sampled.end());
  }
  ASSERT_GT(all.size(), 8u);
  std::vector<int32_t> before = prompt_of(0, 50);
  size_t old = 0;
  for (; all[old].version == 0; ++old) before.push_back(all[old].token);
  ASSERT_GT(old, 2u);
  EXPECT_EQ(all[old].version, 7u);
  auto fresh = engine({.slots = 4, .max_tokens = 256}, 2, 2);
  ASSERT_TRUE(fresh.add(1, before, full_turn(9)));
  const auto expected = *fresh.step();
  EXPECT_EQ(all[old].token, expected[0].token);
  EXPECT_EQ(all[old].logprob, expected[0].logprob);
}

TEST(Engine, weights_that_were_rolled_back_are_as_if_never_swapped) {
  auto e = engine({.slots = 4, .max_tokens = 256}), untouched = engine({.slots = 4, .max_tokens = 256});
  for (Engine* each : {&e, &untouched}) ASSERT_TRUE(each->add(1, prompt_of(0, 50), turn(9)));
  ASSERT_TRUE(e.swap_weights(staged(e, 2), 7));
  ASSERT_TRUE(e.roll_back_weights());
  EXPECT_EQ(e.version(), 0u);
  EXPECT_EQ(run(e), run(untouched));
  EXPECT_EQ(e.roll_back_weights().code(), Code::kNotFound);
}

TEST(Engine, refuses_what_it_cannot_run_and_says_why) {
  auto e = engine({.slots = 2, .max_tokens = 100});
  EXPECT_EQ(e.add(1, {}, turn(1)).message(), "the prompt is empty");
  EXPECT_EQ(e.add(1, {200}, turn(1)).message(), "token 200 at 0 is outside the vocabulary of 200");
  EXPECT_EQ(e.add(1, prompt_of(0, 100), turn(1)).code(), Code::kInvalid);
  ASSERT_TRUE(e.add(1, prompt_of(0, 10), turn(1)));
  EXPECT_EQ(e.add(1, prompt_of(0, 10), turn(1)).message(), "sequence 1 exists already");
  EXPECT_EQ(e.extend(2, prompt_of(0, 10), turn(1)).code(), Code::kNotFound);
  e.release(1);
  e.release(1);
  EXPECT_TRUE(e.idle());
}

}  // namespace
}  // namespace tandem::rollout
