// The experts that an engine's tokens went to: those that a pass over the whole sequence chooses, however they came
// about.
#include <gtest/gtest.h>

#include <map>

#include "base/random.h"
#include "kernels/attention.h"
#include "model/routes.h"
#include "rollout/engine/engine.h"
#include "tests/model/late_executor.h"
#include "tests/model/small_families.h"

namespace tandem::rollout::route_tests {
namespace {

using kernels::kPageTokens;

model::ModelConfig mixture(const char* name = "mixture") {
  for (const auto& family : model::small_families()) {
    if (family.name == std::string_view(name)) return family.config;
  }
  ADD_FAILURE() << name;
  return {};
}

std::shared_ptr<const model::Weights> weights_of(uint64_t seed, const model::ModelConfig& config = mixture()) {
  auto weights = std::make_shared<model::Weights>(std::move(*model::Weights::create(config, false)));
  model::randomise(*weights, seed);
  auto stream = *kernels::Stream::cpu(1);
  EXPECT_TRUE(weights->pack(stream));
  return weights;
}

Result<Engine> make_engine(const std::shared_ptr<const model::Weights>& weights, EngineSettings settings,
                           int depth = 1) {
  settings.record_routes = true;
  const auto make = [&](const model::ExecutorSettings& room) -> Result<std::unique_ptr<model::Executor>> {
    auto cpu = TRY(model::make_cpu_executor(weights, TRY(kernels::Stream::cpu(2)), room));
    return std::make_unique<model::LateExecutor>(std::move(cpu), depth, 0.01);
  };
  return Engine::create(weights->config(), 0, make, settings);
}
Engine engine_of(uint64_t seed, const EngineSettings& settings, int depth = 1) {
  return std::move(*make_engine(weights_of(seed), settings, depth));
}

void swap_to(Engine& engine, uint64_t seed, uint64_t version) {
  auto room = std::move(*engine.stage_weights());
  ASSERT_TRUE(room->prepare(weights_of(seed)->wire()));
  ASSERT_TRUE(engine.swap_weights(std::move(room), version));
}

std::vector<int32_t> prompt_of(uint64_t seed, int length) {
  Random random(seed);
  std::vector<int32_t> prompt(length);
  for (auto& token : prompt) token = static_cast<int32_t>(random.below(150));
  return prompt;
}
TurnRequest turn(uint64_t seed, int tokens = 20) { return {.max_new_tokens = tokens, .seed = seed}; }

// What one pass over the tokens chooses.
std::vector<uint8_t> routes_of(const std::shared_ptr<const model::Weights>& weights,
                               const std::vector<int32_t>& tokens) {
  auto executor =
      std::move(*model::make_cpu_executor(weights, *kernels::Stream::cpu(1), {.pages = 16, .max_positions = 256}));
  model::Plan plan;
  std::vector<int> pages(16);
  for (int i = 0; i < 16; ++i) pages[i] = i;
  EXPECT_TRUE(executor->clear(pages));
  plan.batch.add(tokens, 0, pages);
  plan.routes = true;
  const auto ticket = executor->submit(std::move(plan));
  EXPECT_TRUE(ticket) << ticket.error().message();
  return executor->collect(*ticket)->routes;
}

// A sequence as whoever plays it has it.
struct Told {
  std::vector<int32_t> tokens;
  std::vector<uint64_t> versions;  // of tokens that were sampled
  ExpertRoutes routes;
};
class Listener {
 public:
  explicit Listener(Engine& engine) : engine_(&engine) {}
  void add(SequenceId id, const std::vector<int32_t>& prompt, const TurnRequest& turn) {
    ASSERT_TRUE(engine_->add(id, prompt, turn));
    Told& told = told_[id];
    told.tokens = prompt;
    told.versions.assign(prompt.size(), 0);
    told.routes.shape = engine_->route_shape();
    told.routes.resize(prompt.size());
  }
  void extend(SequenceId id, const std::vector<int32_t>& tokens, const TurnRequest& turn) {
    ASSERT_TRUE(engine_->extend(id, tokens, turn));
    Told& told = told_[id];
    told.tokens.insert(told.tokens.end(), tokens.begin(), tokens.end());
    told.versions.resize(told.tokens.size());
    told.routes.resize(told.tokens.size());
  }
  void step() {
    auto sampled = engine_->step();
    ASSERT_TRUE(sampled) << sampled.error().message();
    for (const auto& token : *sampled) {
      Told& told = told_[token.sequence];
      // Each place is told once, up to the token that is sampled from.
      ASSERT_EQ(token.routes.size(),
                (told.tokens.size() - static_cast<size_t>(token.routes_from)) * told.routes.shape.row_bytes());
      for (size_t at = static_cast<size_t>(token.routes_from); at < told.tokens.size(); ++at)
        EXPECT_EQ(told.routes.recorded[at], 0) << at;
      told.routes.record(static_cast<size_t>(token.routes_from), token.routes);
      told.tokens.push_back(token.token);
      told.versions.push_back(token.version);
      told.routes.resize(told.tokens.size());
    }
  }
  void run() {
    while (!engine_->idle() && !testing::Test::HasFailure()) step();
  }
  const Told& of(SequenceId id) { return told_[id]; }

 private:
  Engine* engine_;
  std::map<SequenceId, Told> told_;
};

void expect_routes(const Told& told, const std::vector<uint8_t>& expected, size_t from = 0, size_t end = SIZE_MAX) {
  end = std::min(end, told.tokens.size() - 1);
  EXPECT_TRUE(told.routes.fits(told.tokens.size()));
  EXPECT_EQ(told.routes.recorded.back(), 0) << "of a token that nothing was sampled from";
  const size_t width = told.routes.shape.row_bytes();
  for (size_t at = from; at < end; ++at) {
    ASSERT_EQ(told.routes.recorded[at], 1) << at;
    const auto row = told.routes.row(at);
    ASSERT_EQ(std::vector<uint8_t>(row.begin(), row.end()),
              std::vector<uint8_t>(expected.begin() + static_cast<ptrdiff_t>(at * width),
                                   expected.begin() + static_cast<ptrdiff_t>((at + 1) * width)))
        << "place " << at << " of " << told.tokens.size();
  }
}

TEST(EngineRoutes, are_those_of_a_pass_over_all_tokens_whatever_the_engine_did) {
  for (const int depth : {1, 2, 3}) {
    for (const auto speculation : {Speculation::kOff, Speculation::kNgram}) {
      // Few slots and pages: turns wait, give up pages, are preempted and computed again.
      for (const EngineSettings settings :
           {EngineSettings{.slots = 8, .max_tokens = 256},
            EngineSettings{.slots = 3, .pages = 6, .max_tokens = 256, .prefill_tokens = 33}}) {
        EngineSettings with = settings;
        with.speculation = speculation;
        auto engine = engine_of(1, with, depth);
        Listener listener(engine);
        // Groups share prompts, which end within a page and at its end.
        for (SequenceId id = 0; id < 8; ++id)
          listener.add(id, prompt_of(id / 4, id < 4 ? 70 : 2 * kPageTokens), turn(id));
        listener.run();
        for (SequenceId id = 0; id < 8; ++id) listener.extend(id, prompt_of(40 + id % 2, 7), turn(20 + id, 10));
        auto urgent = turn(90, 10);
        urgent.priority = -1;
        listener.step();
        listener.add(9, prompt_of(9, 80), urgent);
        listener.run();
        for (SequenceId id = 0; id < 10; ++id) {
          if (id == 8) continue;
          expect_routes(listener.of(id), routes_of(weights_of(1), listener.of(id).tokens));
        }
        EXPECT_GT(engine.counters().shared_tokens, 0u);
      }
    }
  }
}

TEST(EngineRoutes, are_found_with_the_pages_by_prompts_that_begin_alike) {
  auto engine = engine_of(1, {.slots = 4, .max_tokens = 256}, 2);
  Listener listener(engine);
  const auto prompt = prompt_of(1, 100);
  listener.add(1, prompt, turn(1));
  listener.run();
  const uint64_t computed = engine.counters().prompt_tokens;
  auto longer = listener.of(1).tokens;
  longer.resize(110);
  longer.push_back(3);
  listener.add(2, longer, turn(2));
  listener.run();
  EXPECT_LT(engine.counters().prompt_tokens - computed, 60u) << "most of it was found";
  expect_routes(listener.of(2), routes_of(weights_of(1), listener.of(2).tokens));
}

// A place's row is of the weights that sampled the token after it.
TEST(EngineRoutes, of_a_turn_under_two_versions_are_of_the_one_that_sampled_the_token_after) {
  for (const int depth : {1, 3}) {
    auto engine = engine_of(1, {.slots = 4, .max_tokens = 256}, depth);
    Listener listener(engine);
    for (SequenceId id : {1, 2}) listener.add(id, prompt_of(id, 70), turn(id, 40));
    for (int i = 0; i < 12; ++i) listener.step();
    swap_to(engine, 2, 7);
    listener.run();
    for (SequenceId id : {1, 2}) {
      const Told& told = listener.of(id);
      const auto first_new = std::find(told.versions.begin() + 70, told.versions.end(), 7u);
      const auto changed = static_cast<size_t>(first_new - told.versions.begin());
      ASSERT_GT(changed, 70u);
      ASSERT_LT(changed, told.tokens.size());
      const auto before = routes_of(weights_of(1), told.tokens), after = routes_of(weights_of(2), told.tokens);
      ASSERT_NE(before, after);
      expect_routes(told, before, 0, changed - 1);
      expect_routes(told, after, changed - 1);
    }
    // Nothing of the old weights is found.
    listener.add(3, prompt_of(1, 70), turn(3));
    listener.run();
    expect_routes(listener.of(3), routes_of(weights_of(2), listener.of(3).tokens));
  }
}

TEST(EngineRoutes, of_latent_attention_and_leading_dense_layers_count_layers_with_experts_alone) {
  const auto weights = weights_of(1, mixture("latent_attention"));
  auto engine = std::move(*make_engine(weights, {.slots = 2, .max_tokens = 256}));
  EXPECT_EQ(engine.route_shape(), (RouteShape{.layers = 1, .top_k = 2, .experts = 8}));
  Listener listener(engine);
  listener.add(1, prompt_of(1, 40), turn(1));
  listener.run();
  expect_routes(listener.of(1), routes_of(weights, listener.of(1).tokens));
}

TEST(EngineRoutes, are_refused_of_a_model_without_experts) {
  const auto dense = weights_of(1, model::small_model("llama"));
  const auto engine = make_engine(dense, {.slots = 2, .max_tokens = 256});
  ASSERT_FALSE(engine);
  EXPECT_EQ(engine.error().code(), Code::kInvalid);
  EXPECT_NE(engine.error().message().find("mixture of experts"), std::string::npos) << engine.error().message();
  auto executor =
      std::move(*model::make_cpu_executor(dense, *kernels::Stream::cpu(1), {.pages = 2, .max_positions = 64}));
  model::Plan plan;
  const int page = 0;
  plan.batch.add(std::vector<int32_t>{1, 2}, 0, std::span(&page, 1));
  plan.routes = true;
  EXPECT_EQ(executor->submit(std::move(plan)).error().code(), Code::kInvalid);
}

}  // namespace
}  // namespace tandem::rollout::route_tests
