// An engine on a device says the same with and without graphs: turns that come and go, share prompts, draw under masks,
// draft, and get new weights in the middle.
#include <gtest/gtest.h>

#include <map>
#include <tuple>

#include "base/random.h"
#include "kernels/device_stream.h"
#include "rollout/engine/engine.h"
#include "tests/model/emulated.h"
#include "tests/model/graphs_variable.h"
#include "tests/model/tiny_weights.h"

namespace tandem::rollout::graph_tests {
namespace {

using model::tiny_weights;

struct Case {
  uint64_t seed = 0;
  EngineSettings settings;
  bool new_weights = false;
  bool sleeps = false;
};

// Token, logprobs, version.
using Words = std::vector<std::tuple<int32_t, float, float, uint64_t>>;

struct Played {
  std::map<SequenceId, Words> said;
  model::GraphCounters graphs;
};

TurnRequest any_turn(Random& random, uint64_t seed) {
  TurnRequest turn{.max_new_tokens = 5 + static_cast<int>(random.below(50)), .seed = seed};
  turn.sampling.temperature = random.below(3) == 0 ? 0.0f : 1.0f;
  turn.stop_tokens = {3, 77};
  if (random.below(3) == 0) turn.min_new_tokens = 8;
  if (random.below(8) == 0) turn.bias = {{5, 3.0f}};
  for (int i = 0; i < 20; ++i) turn.prediction.push_back(static_cast<int32_t>(random.below(200)));
  return turn;
}

Played play(const Case& c) {
  const model::Place place{.device = {.kind = kernels::Device::Kind::kEmulated, .index = static_cast<int>(c.seed % 8)},
                           .threads = 1};
  auto engine = Engine::create(tiny_weights(1), 0, place, c.settings);
  EXPECT_TRUE(engine) << engine.error().to_string();
  if (!engine) return {};
  Random random(c.seed);
  std::vector<int32_t> shared(70);
  for (auto& token : shared) token = static_cast<int32_t>(random.below(200));
  Played played;
  SequenceId added = 0;
  for (int at = 0; (added < 14 || !engine->idle()) && !testing::Test::HasFailure(); ++at) {
    while (added < 14 && (added < 3 || at > 6 * static_cast<int>(added))) {
      auto prompt = shared;
      if (random.below(2) == 0) prompt.resize(random.below(60));
      for (uint64_t own = 1 + random.below(8); own > 0; --own)
        prompt.push_back(static_cast<int32_t>(random.below(200)));
      EXPECT_TRUE(engine->add(added, prompt, any_turn(random, c.seed * 100 + added)));
      ++added;
    }
    if (c.new_weights && at % 20 == 19) {
      auto room = engine->stage_weights();
      EXPECT_TRUE(room) << room.error().to_string();
      EXPECT_TRUE((*room)->prepare(tiny_weights(1 + at % 3)->wire()));
      EXPECT_TRUE(engine->swap_weights(std::move(*room), at));
    }
    auto sampled = c.sleeps && at % 9 == 4 ? engine->sleep() : engine->step();
    EXPECT_TRUE(sampled) << sampled.error().to_string();
    if (!sampled) break;
    if (at % 9 == 6 && engine->asleep()) {
      EXPECT_TRUE(engine->wake());
    }
    for (const auto& t : *sampled)
      played.said[t.sequence].emplace_back(t.token, t.logprob, t.sampling_logprob, t.version);
  }
  played.graphs = engine->graphs();
  return played;
}

TEST(EngineGraphs, an_engine_says_the_same_with_and_without_them) {
  const EngineSettings plain{.slots = 8, .max_tokens = 160, .prefill_tokens = 64};
  EngineSettings drafting = plain, keeping = plain, finishing = plain, crowded = plain;
  drafting.speculation = Speculation::kNgram;
  keeping.on_new_version = OnNewVersion::kKeep;
  finishing.on_new_version = OnNewVersion::kFinish;
  crowded.pages = 9;
  for (const Case& c : {Case{1, plain, true}, Case{2, keeping, true}, Case{3, finishing, true},
                        Case{4, drafting, false}, Case{5, crowded, true}}) {
    SCOPED_TRACE(c.seed);
    const auto with = play(c);
    EXPECT_GT(with.graphs.captured, 0U);
    EXPECT_GE(with.graphs.launched, with.graphs.captured);
    const model::GraphsVariable off("0");
    const auto without = play(c);
    EXPECT_EQ(without.graphs.captured, 0U);
    EXPECT_EQ(with.said, without.said);
    EXPECT_EQ(with.said.size(), 14U);
    if (HasFailure()) return;
  }
}

// A little longer than a page, so that sequences share pages that sleep takes from them.
TEST(EngineSleep, changes_no_token_and_gives_memory_back) {
  const EngineSettings plain{.slots = 8, .max_tokens = 160, .prefill_tokens = 64};
  EngineSettings drafting = plain;
  drafting.speculation = Speculation::kNgram;
  for (const EngineSettings& settings : {plain, drafting}) {
    const auto awake = play({.seed = 4, .settings = settings});
    EXPECT_EQ(play({.seed = 4, .settings = settings, .sleeps = true}).said, awake.said);
  }
  const model::Place place{.device = {.kind = kernels::Device::Kind::kEmulated, .index = 6}};
  auto engine = Engine::create(tiny_weights(1), 0, place, plain);
  ASSERT_TRUE(engine) << engine.error().to_string();
  const auto stream = kernels::DeviceStream::open(place.device);
  ASSERT_TRUE(stream) << stream.error().to_string();
  const size_t before = stream->free_bytes();
  ASSERT_TRUE(engine->sleep());
  EXPECT_GT(stream->free_bytes(), before);
  ASSERT_TRUE(engine->wake());
  EXPECT_EQ(stream->free_bytes(), before);
}

}  // namespace
}  // namespace tandem::rollout::graph_tests
