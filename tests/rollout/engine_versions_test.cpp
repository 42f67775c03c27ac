// What new weights, salts and priorities do to the sequences of an engine.
#include <gtest/gtest.h>

#include <map>

#include "base/random.h"
#include "rollout/engine/engine.h"
#include "tests/model/late_executor.h"
#include "tests/model/tiny_weights.h"

namespace tandem::rollout::version_tests {
namespace {

using model::tiny_weights;

Engine engine_of(uint64_t seed, EngineSettings settings, int depth = 1) {
  const auto weights = tiny_weights(seed);
  const auto make = [&](const model::ExecutorSettings& room) -> Result<std::unique_ptr<model::Executor>> {
    auto cpu = TRY(model::make_cpu_executor(weights, TRY(kernels::Stream::cpu(2)), room));
    return std::make_unique<model::LateExecutor>(std::move(cpu), depth, 0.01);
  };
  return std::move(*Engine::create(weights->config(), 0, make, settings));
}

void swap_to(Engine& engine, uint64_t seed, uint64_t version) {
  auto room = std::move(*engine.stage_weights());
  ASSERT_TRUE(room->prepare(tiny_weights(seed)->wire()));
  ASSERT_TRUE(engine.swap_weights(std::move(room), version));
}

std::vector<int32_t> prompt_of(uint64_t seed, int length) {
  Random random(seed);
  std::vector<int32_t> prompt(length);
  for (auto& token : prompt) token = static_cast<int32_t>(random.below(200));
  return prompt;
}

TurnRequest turn(uint64_t seed, int tokens = 30) { return {.max_new_tokens = tokens, .seed = seed}; }

using Said = std::map<SequenceId, std::vector<SampledToken>>;
void step(Engine& engine, Said& said) {
  const auto sampled = engine.step();
  ASSERT_TRUE(sampled) << sampled.error().message();
  for (const auto& token : *sampled) said[token.sequence].push_back(token);
}
Said run(Engine& engine) {
  Said said;
  while (!engine.idle() && !testing::Test::HasFailure()) step(engine, said);
  return said;
}
std::vector<std::pair<int32_t, float>> words(const std::vector<SampledToken>& said, size_t from = 0) {
  std::vector<std::pair<int32_t, float>> all;
  for (size_t i = from; i < said.size(); ++i) all.emplace_back(said[i].token, said[i].logprob);
  return all;
}

TEST(EngineVersions, a_turn_finishes_under_the_weights_that_it_began_with) {
  for (const int depth : {1, 3}) {
    for (const auto speculation : {Speculation::kOff, Speculation::kNgram}) {
      const EngineSettings settings{
          .slots = 4, .max_tokens = 256, .speculation = speculation, .on_new_version = OnNewVersion::kFinish};
      auto e = engine_of(1, settings, depth), old = engine_of(1, {.slots = 4, .max_tokens = 256}),
           fresh = engine_of(2, {.slots = 4, .max_tokens = 256});
      for (SequenceId id : {1, 2}) ASSERT_TRUE(e.add(id, prompt_of(id, 70), turn(id)));
      Said said;
      for (int i = 0; i < 8; ++i) step(e, said);
      swap_to(e, 2, 7);
      ASSERT_TRUE(e.add(3, prompt_of(1, 70), turn(3)));
      while (!e.idle()) step(e, said);
      for (SequenceId id : {1, 2}) ASSERT_TRUE(old.add(id, prompt_of(id, 70), turn(id)));
      ASSERT_TRUE(fresh.add(3, prompt_of(1, 70), turn(3)));
      const auto before = run(old), after = run(fresh);
      for (SequenceId id : {1, 2}) {
        EXPECT_EQ(words(said[id]), words(before.at(id))) << depth;
        for (const auto& token : said[id]) EXPECT_EQ(token.version, 0u);
      }
      EXPECT_EQ(words(said[3]), words(after.at(3))) << "nothing of the old weights was found";
      for (const auto& token : said[3]) EXPECT_EQ(token.version, 7u);
      // The next turn is of the new weights, over all that was said.
      ASSERT_TRUE(e.extend(1, prompt_of(9, 5), turn(4)));
      const auto second = run(e);
      auto whole = prompt_of(1, 70);
      for (const auto& token : said[1]) whole.push_back(token.token);
      for (const int32_t token : prompt_of(9, 5)) whole.push_back(token);
      ASSERT_TRUE(fresh.add(4, whole, turn(4)));
      EXPECT_EQ(words(second.at(1)), words(run(fresh).at(4)));
    }
  }
}

TEST(EngineVersions, only_one_older_version_is_kept) {
  auto e = engine_of(1, {.slots = 4, .max_tokens = 256, .on_new_version = OnNewVersion::kFinish}, 2);
  ASSERT_TRUE(e.add(1, prompt_of(1, 70), turn(1, 60)));
  Said said;
  for (int i = 0; i < 8; ++i) step(e, said);
  swap_to(e, 2, 7);
  for (int i = 0; i < 8; ++i) step(e, said);
  const size_t old = said[1].size();
  swap_to(e, 3, 8);
  while (!e.idle()) step(e, said);
  ASSERT_EQ(said[1].size(), 60u);
  EXPECT_EQ(said[1][old - 1].version, 0u);
  // Version 0 was written over, so it goes on under 7, which was live when 8 was staged, and ends with that.
  EXPECT_EQ(said[1].back().version, 7u);
  auto whole = prompt_of(1, 70);
  size_t first = 0;
  for (; said[1][first].version == 0; ++first) whole.push_back(said[1][first].token);
  auto fresh = engine_of(2, {.slots = 4, .max_tokens = 256});
  ASSERT_TRUE(fresh.add(1, whole, turn(1, static_cast<int>(60 - first))));
  EXPECT_EQ(words(said[1], first), words(run(fresh).at(1)));
}

TEST(EngineVersions, what_is_kept_says_of_which_weights_it_is) {
  for (const int depth : {1, 3}) {
    auto e = engine_of(1, {.slots = 4, .max_tokens = 256, .on_new_version = OnNewVersion::kKeep}, depth);
    ASSERT_TRUE(e.add(1, prompt_of(1, 70), turn(1)));
    Said said;
    for (int i = 0; i < 8; ++i) step(e, said);
    swap_to(e, 2, 7);
    while (!e.idle()) step(e, said);
    EXPECT_EQ(e.counters().recomputed_tokens, 0u);
    bool mixed = false;
    for (const auto& token : said[1]) {
      EXPECT_EQ(token.context_version, 0u);
      EXPECT_TRUE(token.version == 0 || token.version == 7);
      mixed = mixed || token.version == 7;
    }
    EXPECT_TRUE(mixed);
    EXPECT_GT(e.counters().mixed_tokens, 0u);
    // The new weights alone would have made something else, and others do not find what is mixed.
    ASSERT_TRUE(e.add(2, prompt_of(1, 70), turn(2)));
    const auto other = run(e);
    auto fresh = engine_of(2, {.slots = 4, .max_tokens = 256});
    ASSERT_TRUE(fresh.add(2, prompt_of(1, 70), turn(2)));
    EXPECT_EQ(words(other.at(2)), words(run(fresh).at(2)));
    for (const auto& token : other.at(2)) EXPECT_EQ(token.context_version, 7u);
    // Scores of a prompt are of one version.
    auto scored = turn(5, 4);
    scored.prompt_logprobs = true;
    ASSERT_TRUE(e.extend(1, prompt_of(3, 4), scored));
    EXPECT_EQ(run(e).at(1)[0].context_version, 7u);
  }
}

TEST(EngineVersions, names_are_those_of_the_config) {
  EXPECT_EQ(*on_new_version_named("finish"), OnNewVersion::kFinish);
  EXPECT_EQ(*on_new_version_named("keep"), OnNewVersion::kKeep);
  EXPECT_EQ(*on_new_version_named("recompute"), OnNewVersion::kRecompute);
  EXPECT_EQ(on_new_version_named("drop").error().code(), Code::kInvalid);
}

TEST(EngineSalts, pages_are_shared_within_a_salt_alone) {
  auto e = engine_of(1, {.slots = 8, .max_tokens = 256});
  const auto salted = [](uint64_t seed, const char* salt) {
    auto request = turn(seed);
    request.cache_salt = salt;
    return request;
  };
  ASSERT_TRUE(e.add(1, prompt_of(1, 150), salted(1, "")));
  const auto first = run(e);
  ASSERT_TRUE(e.add(2, prompt_of(1, 150), salted(1, "a")));
  EXPECT_EQ(words(run(e).at(2)), words(first.at(1))) << "a salt changes no token";
  EXPECT_EQ(e.counters().shared_tokens, 0u);
  ASSERT_TRUE(e.add(3, prompt_of(1, 150), salted(3, "a")));
  ASSERT_TRUE(e.add(4, prompt_of(1, 150), salted(4, "b")));
  run(e);
  EXPECT_EQ(e.counters().shared_tokens, 149u) << "the third has what the second computed";
  // What has gone leaves nothing under its salt once others need the room.
  for (const SequenceId id : {1, 2, 3, 4}) e.release(id);
  ASSERT_TRUE(e.add(5, prompt_of(1, 150), salted(5, "b")));
  EXPECT_EQ(run(e).at(5)[0].cached_tokens, 128);
}

TEST(EnginePriorities, a_turn_that_goes_first_takes_a_slot_and_the_other_says_the_same_later) {
  for (const int depth : {1, 3}) {
    for (const int pages : {0, 6}) {
      auto plain = engine_of(1, {.slots = 8, .max_tokens = 256});
      auto e = engine_of(1, {.slots = 2, .pages = pages, .max_tokens = 256, .speculation = Speculation::kNgram}, depth);
      const auto with = [](uint64_t seed, int priority) {
        auto request = turn(seed, 60);
        request.priority = priority;
        return request;
      };
      for (SequenceId id : {1, 2, 3, 4, 5}) ASSERT_TRUE(plain.add(id, prompt_of(id, 100), with(id, 0)));
      const auto expected = run(plain);
      for (SequenceId id : {1, 2, 3}) ASSERT_TRUE(e.add(id, prompt_of(id, 100), with(id, 3)));
      Said said;
      for (int i = 0; i < 20; ++i) step(e, said);
      for (SequenceId id : {4, 5}) ASSERT_TRUE(e.add(id, prompt_of(id, 100), with(id, 1)));
      std::vector<SequenceId> ended;
      while (!e.idle()) {
        const auto sampled = e.step();
        ASSERT_TRUE(sampled);
        for (const auto& token : *sampled) {
          said[token.sequence].push_back(token);
          if (token.turn_ended) ended.push_back(token.sequence);
        }
      }
      for (SequenceId id : {1, 2, 3, 4, 5}) EXPECT_EQ(words(said[id]), words(expected.at(id))) << id;
      EXPECT_EQ(ended.size(), 5u);
      EXPECT_EQ(std::set<SequenceId>(ended.begin(), ended.begin() + 2), (std::set<SequenceId>{4, 5}));
      EXPECT_GE(e.counters().preemptions, 2u);
    }
  }
}

TEST(EnginePriorities, one_that_lost_its_slot_can_be_let_go) {
  auto e = engine_of(1, {.slots = 1, .max_tokens = 256}, 2);
  auto late = turn(1, 60);
  late.priority = 5;
  ASSERT_TRUE(e.add(1, prompt_of(1, 100), late));
  Said said;
  for (int i = 0; i < 5; ++i) step(e, said);
  ASSERT_TRUE(e.add(2, prompt_of(2, 100), turn(2, 20)));
  step(e, said);
  e.release(1);
  while (!e.idle()) step(e, said);
  EXPECT_EQ(said[2].size(), 20u);
}

}  // namespace
}  // namespace tandem::rollout::version_tests
