// What --dry-run says about memory is what a trainer and an engine of that config allocate.
#include "run/memory.h"

#include <gmock/gmock.h>

#include "model/routes.h"
#include "rollout/engine/engine.h"
#include "tests/model/engine_logprobs.h"
#include "tests/run/temporary_run.h"
#include "trainer/learn/learner.h"
#include "trainer/sft/tiny_model.h"

namespace tandem::run {
namespace {

// A run's config with small sizes, and the tiny model, or another, that it begins with.
class MemoryOfRun : public TemporaryRun {
 protected:
  void take(std::vector<std::string> overrides, const fs::path& model = {}) {
    overrides.insert(overrides.end(), {"device=cpu", "rollout.slots=4", "rollout.max_tokens=128",
                                       "trainer.max_pass_tokens=64", "trainer.threads=2"});
    Schema schema = schema_of(config_);
    const Status read = schema.read("", overrides);
    ASSERT_TRUE(read) << read.to_string();
    model_ = model;
    if (model_.empty()) {
      model_ = dir() / "model";
      const Status made = trainer::make_tiny_model(model_, {.warm_steps = 0}, [](const std::string&) {});
      ASSERT_TRUE(made) << made.to_string();
    }
    auto said = memory_of(config_, *model::read_config(model_));
    ASSERT_TRUE(said) << said.error().to_string();
    said_ = std::move(*said);
  }
  model::Weights weights(bool for_training) const {
    auto weights = model::load_weights(model_, for_training, *model::weight_format_named(config_.model.weights));
    EXPECT_TRUE(weights) << weights.error().to_string();
    return std::move(*weights);
  }

  // A learner as a trainer has it after its first step, in which every virtual slot had a sample.
  trainer::Learner learner_after_a_step(model::Weights weights) const {
    const auto settings = *optimizer_of(config_);
    const auto algorithm = *algorithm_of(config_);
    auto learner = *trainer::Learner::create(std::move(weights), std::move(*kernels::Stream::cpu(2)), settings);
    const Status prepared = learner.prepare(algorithm);
    EXPECT_TRUE(prepared) << prepared.to_string();
    std::vector<trainer::Sample> samples;
    for (int i = 0; i < settings.slots; ++i) {
      trainer::Sample sample{.tokens = {1, 2, 3, 4 + i}, .trained = {0, 1, 1, 1}, .advantage = i % 2 == 0 ? 1.0 : -0.5};
      sample.logprobs.assign(4, -2);
      sample.versions.assign(4, 0);
      samples.push_back(std::move(sample));
    }
    const auto step = learner.reinforce(samples, algorithm, 0);
    EXPECT_TRUE(step) << step.error().to_string();
    return learner;
  }

  void expect_what_a_trainer_takes() {
    const auto learner = learner_after_a_step(weights(true));
    const auto taken = learner.memory();
    Json parts = said_["trainer"];
    const auto expect = [&](const char* part, size_t bytes) {
      EXPECT_EQ(parts.value(part, uint64_t{0}), bytes) << part;
      parts.erase(part);
    };
    expect("masters and gradients", taken.masters_and_gradients);
    expect("moments", taken.optimizer);
    expect("gradients of slots", taken.slots);
    expect("weights and panels", taken.weights.all());
    expect("weights of the step before", taken.previous);
    expect("reference model", taken.reference);
    expect("teacher", taken.teacher);
    const auto& published = learner.weights();
    expect("published version",
           published.format() == model::WeightFormat::kBf16 ? published.flat().size_bytes() : published.wire().size());
    expect("activations of one pass, at most", bytes_of_a_pass());
    EXPECT_EQ(parts, Json::object()) << "every part has its measure here";
  }

  // What a pass of the most rows, those of the longest sample, keeps until its backward pass.
  size_t bytes_of_a_pass() const {
    auto stream = std::move(*kernels::Stream::cpu(2));
    auto training = weights(true);
    EXPECT_TRUE(training.pack(stream));
    std::vector<int32_t> tokens(
        static_cast<size_t>(std::max(config_.trainer.max_pass_tokens, config_.rollout.max_tokens)));
    for (size_t i = 0; i < tokens.size(); ++i) tokens[i] = static_cast<int32_t>(3 + i % 64);  // of any vocabulary
    const std::span<const int32_t> view = tokens;
    trainer::Tape tape(training.config(), training.config().max_positions);
    EXPECT_TRUE(tape.forward(stream, training, trainer::merge(std::span(&view, 1)), {}));
    return tape.kept_bytes();
  }

  void expect_what_a_rollout_takes() {
    auto stream = std::move(*kernels::Stream::cpu(2));
    auto read = std::make_shared<model::Weights>(weights(false));
    ASSERT_TRUE(read->pack(stream));
    const auto taken = read->memory();
    const model::ModelConfig& model = read->config();
    int pages = 0;
    size_t page_bytes = 0;
    const auto engine =
        rollout::Engine::create(model, 0,
                                [&](const model::ExecutorSettings& room) {
                                  auto made = model::make_cpu_executor(read, std::move(stream), room);
                                  if (made) pages = (*made)->pages(), page_bytes = (*made)->page_bytes();
                                  return made;
                                },
                                {.slots = config_.rollout.slots, .max_tokens = config_.rollout.max_tokens});
    ASSERT_TRUE(engine) << engine.error().to_string();
    const Json routes =
        config_.trainer.replay_routes ? rollout::RoutePages::bytes_of(model::route_shape(model), pages) : size_t{0};
    EXPECT_GT(pages, 0);
    EXPECT_EQ(said_["rollout (each)"], (Json{{"weights, live", taken.all() - taken.returned},
                                             {"weights, coming", taken.all()},
                                             {"keys and values", page_bytes * static_cast<size_t>(pages)},
                                             {"routes of their positions", routes}}));
  }

  RunConfig config_;
  fs::path model_;
  Json said_;
};

TEST_F(MemoryOfRun, is_what_trainer_and_engine_of_the_tiny_model_take) {
  take({});
  expect_what_a_trainer_takes();
  expect_what_a_rollout_takes();
}

TEST_F(MemoryOfRun, counts_quantised_weights_and_a_reference_model) {
  take({"model.weights=fp8", "algorithm.kl.estimator=k3", "algorithm.kl.coefficient=0.1", "trainer.optimizer=muon"});
  EXPECT_GT(said_["trainer"]["reference model"].get<uint64_t>(), 0u);
  expect_what_a_trainer_takes();
  expect_what_a_rollout_takes();
}

TEST_F(MemoryOfRun, counts_the_routes_of_experts) {
  take({"trainer.replay_routes=true"}, model::golden_model("qwen3-moe"));
  EXPECT_GT(said_["rollout (each)"]["routes of their positions"].get<uint64_t>(), 0u);
  expect_what_a_trainer_takes();
  expect_what_a_rollout_takes();
}

TEST_F(MemoryOfRun, counts_a_relay_where_there_are_some) {
  take({});
  EXPECT_FALSE(said_.contains("relay (each)"));
  const auto without = memory_need_here(said_, *topology_of(config_));
  take({"run.relays=2"}, model_);
  const auto version = weights(false).wire().size();
  EXPECT_EQ(said_["relay (each)"], (Json{{"version that comes", version},
                                         {"versions that are offered", 2 * version},
                                         {"versions that are fetched slowly, at most", 2 * version},
                                         {"deltas, at most", version}}));
  EXPECT_EQ(memory_need_here(said_, *topology_of(config_)).all - without.all, 12 * version);
}

// Bytes of private memory that this process has mapped to write to, touched or not.
size_t mapped_bytes() {
  const std::string text = read_file("/proc/self/status", 1 << 16).value_or("");
  const size_t at = text.find("VmData:");
  return at == std::string::npos ? 0 : std::stoull(text.substr(at + 7)) * 1024;
}

// The other tests compare part with part: what is allocated and is no part is seen here, by what a larger vocabulary
// adds. Stacks of threads and the rounding of buffers to huge pages are in both and cancel out.
TEST_F(MemoryOfRun, grows_by_what_a_trainer_maps_more) {
#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
  GTEST_SKIP() << "sanitizers map memory of their own";
#endif
  take({"algorithm.kl.estimator=k3", "algorithm.kl.coefficient=0.1"}, model::golden_model("qwen3"));
  struct Bytes {
    size_t said = 0, smallest = 0, taken = 0;
  };
  const auto bytes_with = [&](int vocabulary) {
    auto config = *model::read_config(model_);
    config.vocabulary = vocabulary, config.width = 256, config.layers = 1;
    const Json parts = (*memory_of(config_, config))["trainer"];
    Bytes bytes{.smallest = parts["reference model"].get<size_t>()};
    for (const auto& [part, count] : parts.items()) bytes.said += count.get<size_t>();
    bytes.said -= parts["published version"].get<size_t>();  // of who sends it
    // What two copies that are only read have given back stays mapped.
    bytes.said += 2 * model::Weights::memory_of(config, false)->returned;
    const size_t before = mapped_bytes();
    auto weights = std::move(*model::Weights::create(config, true));
    for (size_t i = 0; kernels::bf16 & weight : weights.flat())
      weight = kernels::to_bf16(static_cast<float>(i++ * 37 % 101) / 2000 - 0.025f);
    const auto learner = learner_after_a_step(std::move(weights));
    bytes.taken = mapped_bytes() - before;
    return bytes;
  };
  (void)bytes_with(1 << 10);  // what is mapped once
  const Bytes small = bytes_with(1 << 12), large = bytes_with(1 << 15);
  // One part that was forgotten, or is counted and not there, is twice as much.
  EXPECT_NEAR(static_cast<double>(large.taken - small.taken), static_cast<double>(large.said - small.said),
              static_cast<double>(large.smallest - small.smallest) / 2);
}

}  // namespace
}  // namespace tandem::run
