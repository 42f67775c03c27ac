// Several ranks take the steps of one: the same weights, losses, norms and counts, from and to the same checkpoints.
#include <fmt/format.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <atomic>
#include <fstream>
#include <functional>
#include <thread>

#include "base/digest.h"
#include "base/random.h"
#include "tests/collectives/processes.h"
#include "tests/model/emulated.h"
#include "trainer/learn/algorithm_config.h"
#include "trainer/learn/algorithm_parts.h"
#include "trainer/learn/learner.h"

namespace tandem::trainer {
namespace {

// More than two pieces of the norm's sum, so that several ranks own something and some nothing.
model::ModelConfig config_for_ranks() {
  model::ModelConfig config;
  config.family = "llama";
  config.layers = 1;
  config.width = 64;
  config.heads = 1;
  config.kv_heads = 1;
  config.head_size = 64;
  config.mlp_width = 64;
  config.vocabulary = 2000;
  config.max_positions = 64;
  config.dtype = model::DType::kBF16;
  return config;
}

// Groups of three samples of one prompt.
std::vector<Sample> groups_for_ranks(uint64_t groups) {
  Random random(5);
  std::vector<Sample> samples;
  for (uint64_t group = 0; group < groups; ++group) {
    std::vector<int32_t> prompt(4 + random.below(6));
    for (auto& token : prompt) token = static_cast<int32_t>(random.below(2000));
    for (int i = 0; i < 3; ++i) {
      Sample sample{.tokens = prompt, .advantage = random.normal(), .group = group};
      for (uint64_t more = 3 + random.below(9); more > 0; --more)
        sample.tokens.push_back(static_cast<int32_t>(random.below(2000)));
      for (size_t at = 0; at < sample.tokens.size(); ++at) sample.trained.push_back(at >= prompt.size());
      sample.versions.assign(sample.tokens.size(), group % 2);
      sample.logprobs.assign(sample.tokens.size(), -7.5f);
      samples.push_back(std::move(sample));
    }
  }
  return samples;
}

OptimizerSettings settings_for_ranks() { return {.learning_rate = {.peak = 1e-3}, .max_pass_tokens = 60}; }

using OfRank = std::function<std::string(Learner& learner)>;

const model::Place kOneThread{.device = {.kind = kernels::Device::Kind::kCpu}, .threads = 1};

// What each rank says; ranks are threads, each on a device of its own where `place` is one.
std::vector<std::string> on_ranks(int count, const OptimizerSettings& settings, const OfRank& body,
                                  const model::Place& place = kOneThread) {
  const collectives::GroupFolder folder;
  std::vector<std::string> said(static_cast<size_t>(count));
  std::vector<std::thread> threads;
  for (int rank = 0; rank < count; ++rank) {
    threads.emplace_back([&, rank] {
      std::string& words = said[static_cast<size_t>(rank)];
      Ranks ranks;
      if (count > 1) {
        auto group = collectives::meet_locally(
            {.folder = folder.path(), .rank = rank, .ranks = count, .deadline = collectives::kEnough});
        if (!group) {
          words = group.error().to_string();
          return;
        }
        ranks = Ranks(std::move(*group));
      }
      auto weights = model::Weights::create(config_for_ranks(), true);
      model::randomise(*weights, 1);
      model::Place own = place;
      if (!own.device.on_cpu()) own.device.index = rank;
      auto learner = Learner::create(std::move(*weights), own, settings, std::move(ranks));
      words = learner ? body(*learner) : learner.error().to_string();
    });
  }
  for (auto& thread : threads) thread.join();
  return said;
}

std::string numbers_of(const Result<StepMetrics>& step) {
  if (!step) return step.error().to_string();
  const StepMetrics& m = *step;
  std::string updates;
  for (const UpdateMetrics& u : m.updates)
    updates += fmt::format(" {} {} {} {} {}", u.loss, u.grad_norm, u.ratio_max, u.approx_kl, u.taken);
  return fmt::format("{} {} {} {} {} {} {} {} {} {}{}; ", m.loss, m.grad_norm, m.entropy, m.kl, m.mismatch_kl,
                     m.ratio_max, m.trained_tokens, m.tree_tokens, m.compared_tokens, m.max_abs_logprob_diff, updates);
}

std::string digest_of_weights(const Learner& learner) {
  return digest_of(std::as_bytes(std::span(learner.weights().wire()))).hex();
}

std::string steps(Learner& learner, uint64_t first, uint64_t last, bool kl = false) {
  const auto algorithm = *algorithm_from_json(
      Json::parse(kl ? R"({"name": "grpo", "kl": {"estimator": "k3", "coefficient": 0.1}})" : R"({"name": "gspo"})"));
  std::string numbers;
  // Fewer groups than slots, so that some ranks have none; then many.
  for (uint64_t version = first; version < last; ++version)
    numbers += numbers_of(learner.reinforce(groups_for_ranks(version == 1 ? 2 : 13), algorithm, version));
  return numbers + digest_of_weights(learner);
}

TEST(LearnerRanks, any_number_of_them_takes_the_steps_of_one) {
  auto bf16_moments = settings_for_ranks(), muon = settings_for_ranks(), lora = settings_for_ranks();
  bf16_moments.moments = Moments::kBf16;
  muon.kind = OptimizerKind::kMuon;
  lora.low_rank = {.rank = 4, .alpha = 8};
  for (const auto& settings : {settings_for_ranks(), bf16_moments, muon, lora}) {
    const auto all = [](Learner& learner) { return steps(learner, 0, 3); };
    const std::string expected = on_ranks(1, settings, all)[0];
    for (const int count : {2, 4, 8}) {
      const auto said = on_ranks(count, settings, all);
      for (size_t rank = 0; rank < said.size(); ++rank) {
        if (rank == 0)
          EXPECT_EQ(said[rank], expected) << count << " ranks";
        else  // what the version before would have said is checked by the first rank alone
          EXPECT_EQ(said[rank].substr(said[rank].size() - 32), expected.substr(expected.size() - 32)) << rank;
      }
    }
  }
}

TEST(LearnerRanks, each_on_a_device_take_the_steps_of_one_on_avx2) {
  const model::Place avx2{.device = {.kind = kernels::Device::Kind::kCpu, .isa = kernels::Isa::kAvx2}, .threads = 1};
  const model::Place devices{.device = {.kind = kernels::Device::Kind::kEmulated}, .threads = 1};
  auto lora = settings_for_ranks(), several = settings_for_ranks();
  lora.low_rank = {.rank = 4, .alpha = 8};
  several.updates = {.epochs = 1, .minibatches = 2, .seed = 9};
  for (const auto& settings : {settings_for_ranks(), lora, several}) {
    const auto all = [](Learner& learner) {
      const auto loss = learner.evaluate(groups_for_ranks(3));
      return fmt::format("{}; ", loss ? *loss : -1) + steps(learner, 0, 2);
    };
    const std::string expected = on_ranks(1, settings, all, avx2)[0];
    for (const int count : {1, 2, 8}) EXPECT_EQ(on_ranks(count, settings, all, devices)[0], expected) << count;
  }
}

TEST(LearnerRanks, a_reference_model_changes_nothing_of_that) {
  const auto all = [](Learner& learner) -> std::string {
    const Status kept = learner.keep_reference();
    return kept ? steps(learner, 0, 2, true) : kept.to_string();
  };
  EXPECT_EQ(on_ranks(4, settings_for_ranks(), all)[0], on_ranks(1, settings_for_ranks(), all)[0]);
}

// With one update, of the whole batch, and with several.
TEST(LearnerRanks, what_a_teacher_says_is_what_it_says_to_one_rank) {
  auto several = settings_for_ranks();
  several.updates = {.epochs = 2, .minibatches = 3, .seed = 9};
  for (const auto& settings : {settings_for_ranks(), several}) {
    for (const char* text : {R"({"advantage": "distill"})", R"({"name": "reinforce++", "teacher": {"weight": 0.5}})"}) {
      const auto algorithm = *algorithm_from_json(Json::parse(text));
      const auto all = [&](Learner& learner) -> std::string {
        auto config = config_for_ranks();
        config.layers = 2;
        auto teacher = model::Weights::create(config, false);
        model::randomise(*teacher, 3);
        if (const Status kept = learner.keep_teacher(std::move(*teacher)); !kept) return kept.to_string();
        std::string numbers;
        for (uint64_t version = 0; version < 2; ++version) {
          const auto step = learner.reinforce(groups_for_ranks(version == 1 ? 2 : 13), algorithm, version);
          numbers += numbers_of(step);
          if (step) numbers += fmt::format("{} ", step->of_loss.at("teacher_kl"));
        }
        return numbers + digest_of_weights(learner);
      };
      const std::string expected = on_ranks(1, settings, all)[0];
      for (const int count : {2, 8}) EXPECT_EQ(on_ranks(count, settings, all)[0], expected) << text;
    }
  }
}

TEST(LearnerRanks, kinds_with_algorithms_of_their_own_are_learned_as_by_one_rank) {
  auto several = settings_for_ranks();
  several.updates = {.epochs = 2, .minibatches = 3, .seed = 9};
  for (const auto& settings : {settings_for_ranks(), several}) {
    for (const char* line : {"b=gspo weight=2", "b=reinforce++", "b=ppo value.trunk=true"}) {
      Algorithm algorithm = *algorithm_named("grpo");
      ASSERT_TRUE(set_parts(std::vector<std::string>{line}, algorithm));
      const auto all = [&](Learner& learner) -> std::string {
        if (const Status ready = learner.prepare(algorithm); !ready) return ready.to_string();
        auto samples = groups_for_ranks(13);
        for (size_t i = 0; i < samples.size(); ++i) samples[i].part = i / 3 % 2;
        for (int32_t i = 0; i < 5; ++i)
          samples.push_back({.tokens = {i, 7, 9 + i}, .trained = {0, 1, 1}, .part = kDemonstrationPart});
        const auto step = learner.reinforce(samples, algorithm, 0);
        std::string numbers = numbers_of(step);
        if (step) numbers += fmt::format("{} {} ", step->parts.at("b").at("loss"), step->parts.at("others").at("loss"));
        if (step) numbers += fmt::format("{} ", step->of_loss.at("demonstration_loss"));
        return numbers + digest_of_weights(learner);
      };
      const std::string expected = on_ranks(1, settings, all)[0];
      for (const int count : {2, 8}) EXPECT_EQ(on_ranks(count, settings, all)[0], expected) << line;
    }
  }
}

TEST(LearnerRanks, losses_of_the_whole_batch_are_those_of_one_rank) {
  for (const char* text :
       {R"({"name": "reinforce++"})", R"({"name": "ppo"})", R"({"name": "opo"})", R"({"name": "gigpo", "gamma": 0.95})",
        R"({"name": "clip_cov", "clip_cov": {"share": 0.5, "low": 0, "high": 1000}})",
        R"({"name": "ppo", "value": {"trunk": true, "coefficient": 2}, "lambda": 0.9})",
        R"({"name": "grpo", "kl": {"estimator": "k2", "coefficient": 0.1, "in_reward": true}})"}) {
    const auto algorithm = *algorithm_from_json(Json::parse(text));
    const auto all = [&](Learner& learner) -> std::string {
      const Status ready = learner.prepare(algorithm);
      if (!ready) return ready.to_string();
      std::string numbers;
      for (uint64_t version = 0; version < 3; ++version)
        numbers += numbers_of(learner.reinforce(groups_for_ranks(version == 1 ? 2 : 13), algorithm, version));
      return numbers + digest_of_weights(learner);
    };
    const std::string expected = on_ranks(1, settings_for_ranks(), all)[0];
    for (const int count : {2, 8}) EXPECT_EQ(on_ranks(count, settings_for_ranks(), all)[0], expected) << text;
  }
}

TEST(LearnerRanks, several_updates_of_a_step_are_those_of_one_rank) {
  auto settings = settings_for_ranks();
  settings.updates = {.epochs = 2, .minibatches = 3, .kl_stop = 0.01, .seed = 9};
  for (const char* text : {R"({"name": "grpo", "correction": {"kind": "tis"}})",
                           R"({"name": "ppo", "value": {"trunk": true, "coefficient": 2}, "lambda": 0.9})",
                           R"({"name": "clip_cov", "clip_cov": {"share": 0.5, "low": 0, "high": 1000}})"}) {
    const auto algorithm = *algorithm_from_json(Json::parse(text));
    const auto all = [&](Learner& learner) -> std::string {
      const Status ready = learner.prepare(algorithm);
      if (!ready) return ready.to_string();
      std::string numbers;
      for (uint64_t version = 0; version < 2; ++version)
        numbers += numbers_of(learner.reinforce(groups_for_ranks(version == 1 ? 2 : 13), algorithm, version));
      return numbers + digest_of_weights(learner);
    };
    const std::string expected = on_ranks(1, settings, all)[0];
    EXPECT_EQ(expected.find("error"), std::string::npos) << expected;
    for (const int count : {2, 8}) EXPECT_EQ(on_ranks(count, settings, all)[0], expected) << text;
  }
}

TEST(LearnerRanks, demonstrations_are_learned_and_evaluated_alike) {
  const auto all = [](Learner& learner) -> std::string {
    const auto samples = groups_for_ranks(9);
    const auto before = learner.evaluate(samples);
    const auto step = numbers_of(learner.imitate(samples));
    return fmt::format("{} {} {}", before ? *before : -1, step, digest_of_weights(learner));
  };
  const std::string expected = on_ranks(1, settings_for_ranks(), all)[0];
  for (const std::string& said : on_ranks(2, settings_for_ranks(), all)) EXPECT_EQ(said, expected);
}

// Not of ranks, but of the same kind: what is shown must not depend on who computes it beside what.
TEST(LearnerRanks, metrics_do_not_depend_on_how_samples_are_packed) {
  auto whole = settings_for_ranks(), small = settings_for_ranks();
  whole.max_pass_tokens = 100'000;
  small.max_pass_tokens = 20;
  const auto entropy = [&](const OptimizerSettings& settings) {
    std::vector<double> entropies;
    on_ranks(1, settings, [&](Learner& learner) -> std::string {
      const auto step =
          learner.reinforce(groups_for_ranks(13), *algorithm_from_json(Json::parse(R"({"name": "grpo"})")), 0);
      if (step) entropies.push_back(step->entropy);
      return "";
    });
    return entropies;
  };
  EXPECT_EQ(entropy(whole), entropy(small));
  EXPECT_GT(entropy(whole).at(0), 0);
}

class LearnerCheckpoints : public testing::Test {
 protected:
  static std::vector<std::string> save(int ranks, const OptimizerSettings& settings, const fs::path& folder) {
    return on_ranks(ranks, settings, [&](Learner& learner) {
      const std::string first = steps(learner, 0, 2);
      const Status saved = learner.save(folder, {{"told", 7}});
      return saved ? first : saved.to_string();
    });
  }
  static std::vector<std::string> go_on(int ranks, const OptimizerSettings& settings, const fs::path& folder) {
    return on_ranks(ranks, settings, [&](Learner& learner) -> std::string {
      const Status loaded = learner.load(folder);
      if (!loaded) return loaded.to_string();
      const std::string at_load = digest_of_weights(learner);
      return at_load + steps(learner, 2, 4);
    });
  }
  static std::string tail(const std::string& text) { return text.substr(text.size() - 32); }

  collectives::GroupFolder folder_;
};

TEST_F(LearnerCheckpoints, are_read_by_any_other_number_of_ranks) {
  auto lora = settings_for_ranks();
  lora.low_rank = {.rank = 4, .alpha = 8};
  for (const auto& settings : {settings_for_ranks(), lora}) {
    for (const int writers : {1, 2, 8}) {
      const fs::path folder = folder_.path() / fmt::format("{}_{}", writers, settings.low_rank.rank);
      const auto saved = save(writers, settings, folder);
      const auto alone = go_on(1, settings, folder)[0];
      EXPECT_EQ(alone.substr(0, 32), tail(saved[0]));
      for (const int readers : {2, 4})
        EXPECT_EQ(tail(go_on(readers, settings, folder)[0]), tail(alone)) << writers << " to " << readers;
      EXPECT_EQ((*checkpoint_progress(folder))["told"], 7);
      const auto weights = checkpoint_weights(folder);
      ASSERT_TRUE(weights) << weights.error().to_string();
      EXPECT_EQ(digest_of(std::as_bytes(std::span(weights->wire()))).hex(), tail(saved[0]));
    }
  }
}

// A critic is whole on every rank, and in the file of the first.
TEST_F(LearnerCheckpoints, have_the_critic_for_any_number_of_ranks) {
  const auto algorithm = *algorithm_from_json(Json::parse(R"({"name": "ppo", "value": {"trunk": true}})"));
  const auto two_steps = [&](Learner& learner, uint64_t first) {
    return numbers_of(learner.reinforce(groups_for_ranks(13), algorithm, first)) +
           numbers_of(learner.reinforce(groups_for_ranks(13), algorithm, first + 1)) + digest_of_weights(learner);
  };
  const fs::path folder = folder_.path() / "critic";
  const auto expected = on_ranks(2, settings_for_ranks(), [&](Learner& learner) -> std::string {
    if (!learner.prepare(algorithm)) return "no critic";
    two_steps(learner, 0);
    const Status saved = learner.save(folder);
    return saved ? two_steps(learner, 2) : saved.to_string();
  });
  for (const int readers : {1, 4}) {
    const auto said = on_ranks(readers, settings_for_ranks(), [&](Learner& learner) -> std::string {
      if (!learner.prepare(algorithm)) return "no critic";
      const Status loaded = learner.load(folder);
      return loaded ? two_steps(learner, 2) : loaded.to_string();
    });
    EXPECT_EQ(tail(said[0]), tail(expected[0])) << said[0];
  }
  const auto without =
      on_ranks(1, settings_for_ranks(), [&](Learner& learner) { return learner.load(folder).to_string(); });
  EXPECT_NE(without[0].find("a critic"), std::string::npos) << without[0];
}

// So is a head of rewards, by which pairs are learned to the bits of one rank.
TEST_F(LearnerCheckpoints, have_the_reward_head_for_any_number_of_ranks) {
  std::vector<Sample> answers;
  for (Sample& sample : groups_for_ranks(13)) {
    if (answers.size() % 2 == 1 && answers.back().group != sample.group) answers.pop_back();
    std::ranges::fill(sample.trained, 0);
    sample.trained.back() = 1;
    answers.push_back(std::move(sample));
  }
  answers.resize(answers.size() / 2 * 2);
  const std::vector<double> margins(answers.size() / 2, 0.25);
  const auto two_steps = [&](Learner& learner) -> std::string {
    std::string said;
    for (int i = 0; i < 2; ++i) {
      const auto step = learner.learn_rewards(answers, margins, {.center = 0.01});
      if (!step) return step.error().to_string();
      said += numbers_of(step) + fmt::format("{} {} ", step->of_loss.at("margin"), step->of_loss.at("head_grad_norm"));
    }
    const auto rewards = learner.rewards(answers);
    for (const double reward : rewards.value()) said += fmt::format("{} ", reward);
    return said + digest_of_weights(learner);
  };
  const fs::path folder = folder_.path() / "rewards";
  std::string expected;
  for (const int ranks : {1, 2, 4}) {
    const auto said = on_ranks(ranks, settings_for_ranks(), [&](Learner& learner) -> std::string {
      if (!learner.keep_reward_head(1e-2, {}, {{"a", "b"}})) return "no head";
      std::string words = two_steps(learner);
      const Status saved = learner.save(folder);
      return saved ? words + " | " + two_steps(learner) : saved.to_string();
    });
    if (expected.empty()) expected = said[0];
    for (const std::string& words : said) EXPECT_EQ(words, expected) << ranks << " ranks";
  }
  const std::string later = expected.substr(expected.find(" | ") + 3);
  for (const int readers : {1, 2}) {
    const auto said = on_ranks(readers, settings_for_ranks(), [&](Learner& learner) -> std::string {
      if (!learner.keep_reward_head(1e-2, {}, {{"a", "b"}})) return "no head";
      const Status loaded = learner.load(folder);
      return loaded ? two_steps(learner) : loaded.to_string();
    });
    EXPECT_EQ(said[0], later) << readers << " ranks";
  }
}

TEST_F(LearnerCheckpoints, a_damaged_shard_is_refused_by_all_ranks) {
  const fs::path folder = folder_.path() / "step_2";
  save(2, settings_for_ranks(), folder);
  const fs::path shard = folder / "optimizer-00001-of-00002.safetensors";
  std::fstream file(shard, std::ios::in | std::ios::out | std::ios::binary);
  file.seekp(-9, std::ios::end);
  file.put('\x5a');
  file.close();
  for (const int readers : {1, 2}) {
    for (const std::string& said : go_on(readers, settings_for_ranks(), folder))
      EXPECT_NE(said.find("00001-of-00002.safetensors: second_moments is damaged"), std::string::npos) << said;
  }
  fs::remove(shard);
  for (const std::string& said : go_on(2, settings_for_ranks(), folder))
    EXPECT_NE(said.find("00001-of-00002"), std::string::npos) << said;
}

TEST(LearnerRanks, one_that_leaves_is_named_and_numbers_that_cannot_be_are_refused) {
  std::atomic<int> calls{0};
  const auto said = on_ranks(4, settings_for_ranks(), [&](Learner& learner) -> std::string {
    if (++calls == 3) return "left";
    return steps(learner, 0, 1);
  });
  int named = 0;
  for (const std::string& words : said) named += words.find("rank") != std::string::npos ? 1 : 0;
  EXPECT_EQ(named, 3);
  auto few = settings_for_ranks();
  few.slots = 1;
  for (const std::string& words : on_ranks(2, few, [](Learner&) { return "made"; }))
    EXPECT_NE(words.find("trainer.ranks must be a power of two"), std::string::npos) << words;
}

}  // namespace
}  // namespace tandem::trainer
