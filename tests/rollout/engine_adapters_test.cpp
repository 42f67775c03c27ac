// Sequences with adapters beside the weights, several in one batch: each says what it says alone.
#include <gtest/gtest.h>

#include <algorithm>
#include <limits>
#include <map>

#include "base/random.h"
#include "rollout/engine/engine.h"
#include "tests/model/late_executor.h"
#include "tests/model/small_adapter.h"
#include "tests/model/tiny_weights.h"

namespace tandem::rollout::adapter_tests {
namespace {

using model::LiveAdapter;
using model::small_live_adapter;
using model::tiny_weights;
using model::WeightFormat;
using AdapterPointer = std::shared_ptr<const LiveAdapter>;

std::shared_ptr<model::Weights> weights_in(WeightFormat format, uint64_t seed = 1) {
  const auto tiny = tiny_weights(seed);
  auto weights = std::make_shared<model::Weights>(std::move(*model::Weights::create(tiny->config(), false, format)));
  if (format == WeightFormat::kFloat32) {
    std::ranges::transform(tiny->flat(), weights->flat<float>().begin(),
                           [](auto value) { return kernels::to_float(value); });
  } else {
    std::ranges::copy(tiny->flat(), weights->flat().begin());
  }
  auto stream = std::move(*kernels::Stream::cpu(2));
  EXPECT_TRUE(weights->pack(stream));
  return weights;
}

Engine engine_over(const std::shared_ptr<const model::Weights>& weights, int depth = 1,
                   Speculation speculation = Speculation::kOff, int pages = 0) {
  const auto make = [&](const model::ExecutorSettings& room) -> Result<std::unique_ptr<model::Executor>> {
    auto cpu = TRY(model::make_cpu_executor(weights, TRY(kernels::Stream::cpu(2)), room));
    return std::make_unique<model::LateExecutor>(std::move(cpu), depth, 0.01);
  };
  return std::move(*Engine::create(weights->config(), 0, make,
                                   {.slots = 6,
                                    .pages = pages,
                                    .max_tokens = 200,
                                    .prefill_tokens = 64,
                                    .prefill_beside = 48,
                                    .speculation = speculation}));
}

std::vector<int32_t> prompt_of(uint64_t seed, int length) {
  Random random(seed);
  std::vector<int32_t> prompt(length);
  for (auto& token : prompt) token = static_cast<int32_t>(random.below(200));
  return prompt;
}

struct Request {
  std::vector<int32_t> prompt;
  TurnRequest turn;
};
Request request_of(uint64_t seed, int length, AdapterPointer adapter, int tokens = 24) {
  Request request{.prompt = prompt_of(seed, length), .turn = {.max_new_tokens = tokens, .seed = seed}};
  request.turn.adapter = std::move(adapter);
  return request;
}

using Words = std::vector<std::pair<int32_t, float>>;
struct Said {
  Words words;
  int cached = 0;
};
// All of them at once, by their places; they are released at the end. Others may run meanwhile.
std::vector<Said> said_by(Engine& engine, const std::vector<Request>& requests) {
  for (size_t i = 0; i < requests.size(); ++i) {
    const Status added = engine.add(i, requests[i].prompt, requests[i].turn);
    EXPECT_TRUE(added) << added.to_string();
  }
  std::vector<Said> said(requests.size());
  while (!engine.idle() && !testing::Test::HasFailure()) {
    const auto sampled = engine.step();
    EXPECT_TRUE(sampled) << sampled.error().to_string();
    if (!sampled) break;
    for (const auto& token : *sampled) {
      if (token.sequence >= said.size()) continue;
      auto& of = said[token.sequence];
      if (of.words.empty()) of.cached = token.cached_tokens;
      of.words.emplace_back(token.token, token.logprob);
    }
  }
  for (size_t i = 0; i < requests.size(); ++i) engine.release(i);
  return said;
}

TEST(EngineAdapters, a_sequence_says_what_it_says_alone_whatever_is_beside_it) {
  for (const auto format : {WeightFormat::kBf16, WeightFormat::kFp8, WeightFormat::kFloat32}) {
    SCOPED_TRACE(to_string(format));
    const auto weights = weights_in(format);
    const AdapterPointer a = small_live_adapter(*weights, 11), b = small_live_adapter(*weights, 12, 7);
    std::vector<Request> requests;
    for (uint64_t prompt = 0; prompt < 4; ++prompt) {
      const int length = 3 + static_cast<int>(prompt) * 31;
      for (const AdapterPointer& adapter : {AdapterPointer(), a, b})
        requests.push_back(request_of(prompt, length, adapter));
    }
    std::vector<Words> alone;
    for (const Request& request : requests) {
      auto engine = engine_over(weights);
      alone.push_back(said_by(engine, {request}).front().words);
    }
    EXPECT_NE(alone[0], alone[1]);
    EXPECT_NE(alone[1], alone[2]);
    for (const int depth : {1, 3}) {
      auto engine = engine_over(weights, depth);
      for (const bool again : {false, true}) {
        const auto together = said_by(engine, requests);
        int cached = 0;
        for (size_t i = 0; i < requests.size(); ++i) {
          EXPECT_EQ(together[i].words, alone[i]) << i << " depth " << depth << (again ? " again" : "");
          cached += together[i].cached;
        }
        if (again) {
          EXPECT_GT(cached, 0);
        }
      }
      EXPECT_EQ(engine.adapters(), 0);
    }
    // The same as where all rows have it.
    const auto own = weights_in(format);
    own->attach(a);
    auto engine = engine_over(own);
    auto bare = requests[10];
    bare.turn.adapter.reset();
    EXPECT_EQ(said_by(engine, {bare}).front().words, alone[10]);
  }
}

TEST(EngineAdapters, a_sequence_keeps_its_own_where_its_pages_are_given_up_and_in_its_next_turn) {
  const auto weights = weights_in(WeightFormat::kBf16);
  const AdapterPointer a = small_live_adapter(*weights, 21), b = small_live_adapter(*weights, 22);
  std::vector<Request> requests;
  for (uint64_t i = 0; i < 9; ++i) {
    requests.push_back(request_of(i, 60, i % 3 == 0 ? nullptr : i % 3 == 1 ? a : b));
    requests.back().turn.priority = static_cast<int>(8 - i);
    requests.back().turn.prompt_logprobs = i % 2 == 0;
  }
  const std::vector<int32_t> result = prompt_of(99, 9);
  // Both turns of each of `of`, which run at once.
  const auto both_turns = [&](Engine& engine, const std::vector<size_t>& of) {
    std::map<SequenceId, Words> said;
    for (const bool next : {false, true}) {
      for (const size_t i : of) {
        TurnRequest turn = requests[i].turn;
        if (next) turn.adapter = i % 3 == 1 ? b : nullptr;  // which is of no effect
        const Status begun = next ? engine.extend(i, result, turn) : engine.add(i, requests[i].prompt, turn);
        EXPECT_TRUE(begun) << begun.to_string();
      }
      while (!engine.idle() && !testing::Test::HasFailure()) {
        const auto sampled = engine.step();
        EXPECT_TRUE(sampled) << sampled.error().to_string();
        if (!sampled) break;
        for (const auto& token : *sampled) said[token.sequence].emplace_back(token.token, token.logprob);
      }
    }
    for (const size_t i : of) engine.release(i);
    return said;
  };
  std::map<SequenceId, Words> expected;
  for (size_t i = 0; i < requests.size(); ++i) {
    auto engine = engine_over(weights);
    expected.merge(both_turns(engine, {i}));
  }
  auto narrow = engine_over(weights, 1, Speculation::kNgram, 4);
  EXPECT_EQ(both_turns(narrow, {0, 1, 2, 3, 4, 5, 6, 7, 8}), expected);
  EXPECT_GT(narrow.counters().preemptions, 0u);
  EXPECT_EQ(narrow.adapters(), 0);
}

TEST(EngineAdapters, guesses_change_nothing_under_an_adapter) {
  const auto weights = weights_in(WeightFormat::kBf16);
  std::vector<Request> requests;
  for (uint64_t i = 0; i < 6; ++i) {
    requests.push_back(request_of(i, 12, i % 3 == 0 ? nullptr : small_live_adapter(*weights, i % 3), 60));
    requests.back().turn.sampling.temperature = 0;
  }
  auto plain = engine_over(weights);
  const auto expected = said_by(plain, requests);
  for (size_t i = 0; i < requests.size(); ++i) {
    for (const auto& [token, logprob] : expected[i].words) requests[i].turn.prediction.push_back(token);
  }
  auto guessing = engine_over(weights, 1, Speculation::kNgram);
  const auto found = said_by(guessing, requests);
  for (size_t i = 0; i < requests.size(); ++i) EXPECT_EQ(found[i].words, expected[i].words) << i;
  EXPECT_GT(guessing.counters().accepted_tokens, 0u);
  EXPECT_LT(guessing.counters().steps, plain.counters().steps);
}

TEST(EngineAdapters, pages_are_found_by_the_content_of_an_adapter) {
  const auto weights = weights_in(WeightFormat::kBf16);
  auto engine = engine_over(weights);
  const auto cached = [&](const AdapterPointer& adapter, const std::string& salt = "") {
    Request request = request_of(5, 100, adapter, 3);
    request.turn.cache_salt = salt;
    return said_by(engine, {request}).front().cached;
  };
  const AdapterPointer first = small_live_adapter(*weights, 1), same = small_live_adapter(*weights, 1);
  EXPECT_EQ(cached(nullptr), 0);
  EXPECT_EQ(cached(first), 0);
  EXPECT_GT(cached(same), 0);
  EXPECT_EQ(cached(small_live_adapter(*weights, 2)), 0);
  EXPECT_GT(cached(nullptr), 0);
  // Whoever chooses a salt cannot choose an adapter's.
  EXPECT_EQ(cached(nullptr, "adapter " + first->digest().hex()), 0);
  EXPECT_EQ(cached(first, "mine"), 0);
  EXPECT_GT(cached(same, "mine"), 0);
}

TEST(EngineAdapters, one_that_is_let_go_meanwhile_lives_until_its_last_sequence_does) {
  const auto weights = weights_in(WeightFormat::kBf16);
  for (const int depth : {1, 3}) {
    AdapterPointer adapter = small_live_adapter(*weights, 3);
    const std::weak_ptr<const LiveAdapter> watched = adapter;
    Words expected;
    {
      auto alone = engine_over(weights);
      expected = said_by(alone, {request_of(1, 20, adapter)}).front().words;
    }
    auto engine = engine_over(weights, depth);
    Request request = request_of(1, 20, std::move(adapter));
    ASSERT_TRUE(engine.add(1, request.prompt, request.turn));
    ASSERT_TRUE(engine.add(2, request.prompt, request.turn));
    request = {};
    Words said;
    const auto take = [&] {
      const auto sampled = engine.step();
      ASSERT_TRUE(sampled) << sampled.error().to_string();
      for (const auto& token : *sampled) {
        if (token.sequence == 2) said.emplace_back(token.token, token.logprob);
      }
    };
    for (int i = 0; i < 6; ++i) take();
    engine.release(1);  // in the middle of its turn
    EXPECT_EQ(engine.adapters(), 1);
    while (!engine.idle() && !HasFailure()) take();
    EXPECT_EQ(said, expected);
    EXPECT_FALSE(watched.expired());
    engine.release(2);
    EXPECT_EQ(engine.adapters(), 0);
    // What a late executor still has to do is done with the next pass.
    Request other = request_of(2, 5, nullptr, 2);
    said_by(engine, {other});
    EXPECT_TRUE(watched.expired());
  }
}

TEST(EngineAdapters, stay_beside_new_weights) {
  const auto old = weights_in(WeightFormat::kBf16, 1), fresh = weights_in(WeightFormat::kBf16, 2);
  const AdapterPointer adapter = small_live_adapter(*old, 4);
  const Request request = request_of(7, 40, adapter);
  auto expecting = engine_over(fresh);
  const auto expected = said_by(expecting, {request}).front().words;
  auto engine = engine_over(old);
  EXPECT_NE(said_by(engine, {request}).front().words, expected);
  ASSERT_TRUE(engine.add(99, request.prompt, request.turn));  // runs while they come
  ASSERT_TRUE(engine.step());
  auto room = std::move(*engine.stage_weights());
  ASSERT_TRUE(room->prepare(fresh->wire()));
  ASSERT_TRUE(engine.swap_weights(std::move(room), 1));
  EXPECT_EQ(said_by(engine, {request}).front().words, expected);
}

TEST(EngineAdapters, of_another_model_is_refused) {
  const auto weights = weights_in(WeightFormat::kBf16), wide = weights_in(WeightFormat::kFloat32);
  auto engine = engine_over(weights);
  const Request request = request_of(1, 5, small_live_adapter(*wide, 1));
  const Status status = engine.add(1, request.prompt, request.turn);
  EXPECT_EQ(status.code(), Code::kInvalid);
  EXPECT_NE(status.to_string().find("another shape or number format"), std::string::npos) << status.to_string();
  EXPECT_FALSE(engine.knows(1));
  EXPECT_EQ(engine.adapters(), 0);
}

TEST(EngineAdapters, with_numbers_that_are_none_are_refused_by_name) {
  const auto weights = weights_in(WeightFormat::kBf16);
  auto stream = std::move(*kernels::Stream::cpu(1));
  auto adapter = model::small_adapter(weights->layout(), 1, 4);
  adapter.factors.begin()->second.b[3] = std::numeric_limits<float>::quiet_NaN();
  const auto refused = LiveAdapter::create(stream, adapter, *weights);
  ASSERT_FALSE(refused);
  EXPECT_NE(refused.error().to_string().find("the factors of " + adapter.factors.begin()->first), std::string::npos)
      << refused.error().to_string();
}

}  // namespace
}  // namespace tandem::rollout::adapter_tests
