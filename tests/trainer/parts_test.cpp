// Kinds of task with algorithms of their own: how they are written, and what a step of several is.
#include "trainer/learn/parts.h"

#include <gtest/gtest.h>

#include <utility>

#include "base/random.h"
#include "trainer/learn/algorithm_config.h"
#include "trainer/learn/algorithm_parts.h"
#include "trainer/learn/learner.h"

namespace tandem::trainer {
namespace {

Algorithm algorithm_with(const std::string& name, const std::vector<std::string>& lines) {
  Algorithm algorithm = *algorithm_named(name);
  const Status status = set_parts(lines, algorithm);
  EXPECT_TRUE(status) << status.to_string();
  return algorithm;
}

TEST(AlgorithmParts, are_lines_of_kinds_a_name_and_keys) {
  const Algorithm a = algorithm_with("grpo", {"bug, rename=gspo clip_high=0.0004 kl.estimator=k3 kl.coefficient=0.01",
                                              "sum=sapo  weight=2.5 sapo.tau_positive=3"});
  ASSERT_EQ(a.parts.size(), 2u);
  EXPECT_EQ(a.parts[0].kinds, (std::vector<std::string>{"bug", "rename"}));
  EXPECT_EQ(a.parts[0].name, "gspo");
  EXPECT_EQ(a.parts[0].clip_high, 0.0004);
  EXPECT_EQ(a.parts[0].kl.estimator, Kl::Estimator::kK3);
  EXPECT_EQ(a.parts[0].kl.coefficient, 0.01);
  EXPECT_EQ(a.parts[0].weight, 1);
  EXPECT_EQ(a.parts[1].weight, 2.5);
  EXPECT_EQ(a.parts[1].own.at("sapo.tau_positive"), 3);
  EXPECT_EQ(part_for(a, "rename"), 1u);
  EXPECT_EQ(part_for(a, "sum"), 2u);
  EXPECT_EQ(part_for(a, "count"), 0u);
  EXPECT_EQ(&part_of(a, 0), &a);
  EXPECT_EQ(part_of(a, 2).name, "sapo");
  EXPECT_TRUE(any_part(a, needs_reference));
  EXPECT_FALSE(needs_reference(a));
}

TEST(AlgorithmParts, take_any_space_between_words_and_the_algorithms_own_numbers) {
  Algorithm a = *algorithm_named("grpo");
  ASSERT_TRUE(set_parts(std::vector<std::string>{"bug = gspo\tclip_low=-1 \n clip_high=0.5 "}, a));
  EXPECT_EQ(a.parts[0].clip_low, algorithm_named("gspo")->clip_low);
  EXPECT_EQ(a.parts[0].clip_high, 0.5);
  const auto keys = keys_of_part("bug=gspo kl.clamp=2 gamma=0.5 weight=3");
  EXPECT_EQ(keys.given, (std::vector<std::string>{"algorithm.name", "algorithm.gamma", "algorithm.kl.clamp"}));
  EXPECT_EQ(keys.config.name, "gspo");
  EXPECT_EQ(keys.config.gamma, 0.5);
}

TEST(AlgorithmParts, have_the_teacher_of_the_run) {
  Algorithm a = *algorithm_named("grpo");
  a.teacher = {.path = "big", .weight = 0.5, .clamp = 3};
  ASSERT_TRUE(set_parts(std::vector<std::string>{"bug=grpo teacher.weight=2"}, a));
  EXPECT_EQ(a.parts[0].teacher, (Teacher{.path = "big", .weight = 2, .clamp = 3}));
}

TEST(AlgorithmParts, that_cannot_be_are_named) {
  const auto refused = [](std::vector<std::string> lines) {
    Algorithm a = *algorithm_named("grpo");
    const std::string said = set_parts(lines, a).to_string();
    EXPECT_TRUE(a.parts.empty() || said.find("critic") != std::string::npos);
    return said;
  };
  for (const auto& [line, words] : std::vector<std::pair<std::string, std::string>>{
           {"bug", "is not KIND[,KIND...]=NAME [KEY=VALUE...]"},
           {"bug=", "is not KIND[,KIND...]=NAME"},
           {"=gspo", "names no kind of task"},
           {"bug,=gspo", "names no kind of task"},
           {"bug,bug=gspo", "bug has an algorithm already"},
           {"bug=gsop", "did you mean \"gspo\"?"},
           {"bug=gspo clip_hihg=1", "did you mean \"clip_high\"?"},
           {"bug=gspo clip_high", "\"clip_high\" is not KEY=VALUE"},
           {"bug=gspo clip_high=much", "clip_high is \"much\""},
           {"bug=gspo clip_high=1 clip_high=2", "clip_high is given twice"},
           {"bug=gspo kl=k3 kl.clamp=1", "is no key of the algorithm section"},
           {"bug=gspo kl..clamp=1", "is no key of the algorithm section"},
           {"bug=gspo weight=0", "weight is 0, not a number above 0"},
           {"bug=gspo weight=many", "weight is \"many\""},
           {"bug=gspo wieght=2", "did you mean \"weight\"?"},
           {"bug=gspo name=grpo", "name is given twice"},
           {"bug=gspo teacher.path=x", "teacher.path is of algorithm.teacher alone"},
           {"bug=gspo teacher.url=x", "teacher.url is of algorithm.teacher alone"},
           {"bug=torch script=x.py", "torch is of algorithm.name alone"},
           {"bug=gspo clip_high=101", "clip_high is 101, not a number from 0 to 100"},
           {"bug=gspo clip_high=-2", "clip_high is -2, not a number from 0 to 100"},
           {"bug=gspo kl.coefficient=1e8", "kl.coefficient is 100000000.0, not a number from 0 to 1000000"},
           {"others=gspo", "stands for the kinds without an algorithm of their own"},
           {"bug=gspo kinds=sum", "unknown key \"kinds\""}}) {
    const std::string said = refused({line});
    EXPECT_NE(said.find(words), std::string::npos) << line << ": " << said;
    EXPECT_NE(said.find("algorithm.kinds: \"" + line + "\""), std::string::npos) << said;
  }
  EXPECT_NE(refused({"bug=gspo", "sum,bug=grpo"}).find("bug has an algorithm already"), std::string::npos);
  EXPECT_NE(refused({"bug=ppo value.coefficient=1", "sum=ppo"}).find("there is one critic"), std::string::npos);
}

class LearnerParts : public testing::Test {
 protected:
  static constexpr uint64_t kVersion = 7;

  static Learner learner(const BatchUpdates& updates = {}) {
    model::ModelConfig config;
    config.family = "llama";
    config.layers = 1;
    config.width = 64;
    config.heads = 1;
    config.kv_heads = 1;
    config.head_size = 64;
    config.mlp_width = 64;
    config.vocabulary = 50;
    config.max_positions = 64;
    config.tied_embeddings = true;
    config.dtype = model::DType::kBF16;
    auto weights = std::move(*model::Weights::create(config, true));
    model::randomise(weights, 1);
    for (auto& value : weights.flat()) value = kernels::to_bf16(kernels::to_float(value) * 4);
    return std::move(*Learner::create(std::move(weights), std::move(*kernels::Stream::cpu(1)),
                                      {.learning_rate = {.peak = 3e-3}, .max_pass_tokens = 40, .updates = updates}));
  }

  // Six groups of two samples with rewards, of the parts 0, 1, 2, 0, 1, 2.
  static std::vector<Sample> samples() {
    Random random(3);
    std::vector<Sample> samples;
    for (uint64_t group = 0; group < 6; ++group) {
      for (int i = 0; i < 2; ++i) {
        Sample sample{.advantage = random.normal(), .group = group, .part = static_cast<uint32_t>(group % 3)};
        for (uint64_t token = 0; token < 6; ++token)
          sample.tokens.push_back(static_cast<int32_t>((7 * group + token) % 50));
        for (uint64_t more = 4 + random.below(6); more > 0; --more)
          sample.tokens.push_back(static_cast<int32_t>(random.below(50)));
        for (size_t at = 0; at < sample.tokens.size(); ++at) sample.trained.push_back(at >= 6 && at != 8);
        sample.versions.assign(sample.tokens.size(), kVersion);
        for (size_t at = 0; at < sample.tokens.size(); ++at)
          sample.logprobs.push_back(static_cast<float>(-4 + 0.1 * random.normal()));
        samples.push_back(std::move(sample));
      }
    }
    return samples;
  }

  static std::vector<Sample> of_part(uint32_t part) {
    std::vector<Sample> chosen;
    for (Sample& sample : samples()) {
      if (sample.part == part) chosen.push_back(std::move(sample));
    }
    return chosen;
  }

  // The step of a fresh learner, by an algorithm that may need more than the model.
  static StepMetrics step_of(const std::vector<Sample>& batch, const Algorithm& algorithm,
                             const BatchUpdates& updates = {}) {
    Learner one = learner(updates);
    EXPECT_TRUE(one.prepare(algorithm));
    auto step = one.reinforce(batch, algorithm, kVersion);
    EXPECT_TRUE(step) << step.error().to_string();
    return step ? *step : StepMetrics{};
  }
};

// One update by samples alone, one that looks at the whole batch, and several.
TEST_F(LearnerParts, each_has_the_loss_of_its_samples_alone_and_the_step_their_sum) {
  const std::vector<std::string> of_samples = {"b=gspo weight=2", "c=dapo kl.estimator=k3 kl.coefficient=0.1"},
                                 of_batches = {"b=reinforce++ gamma=0.9", "c=gigpo"};
  for (const BatchUpdates& updates : {BatchUpdates{}, BatchUpdates{.epochs = 2, .minibatches = 1}}) {
    for (const auto& lines : {of_samples, of_batches}) {
      const Algorithm algorithm = algorithm_with("grpo", lines);
      const auto step = step_of(samples(), algorithm, updates);
      double sum = 0;
      const char* const names[] = {"others", "b", "c"};
      ASSERT_EQ(step.parts.size(), 3u);
      for (uint32_t part = 0; part < 3; ++part) {
        Algorithm alone = part_of(algorithm, part);
        const double weight = std::exchange(alone.weight, 1);
        alone.parts.clear();
        auto means = step.parts.at(names[part]);
        EXPECT_EQ(means.at("samples"), 4);
        // Later updates follow the steps that the parts take together.
        if (updates.epochs == 1) {
          const auto expected = step_of(of_part(part), alone, updates);
          EXPECT_NEAR(means.at("loss"), expected.loss, 1e-12 + 1e-12 * std::abs(expected.loss)) << lines[0] << part;
          EXPECT_DOUBLE_EQ(means.at("ratio_mean"), expected.ratio_mean);
          EXPECT_EQ(means.at("tokens"), static_cast<double>(expected.trained_tokens));
        }
        sum += weight * means.at("loss") / 3;
      }
      EXPECT_NEAR(step.loss, sum, 1e-12);
      EXPECT_GT(step.grad_norm, 0);
    }
  }
}

TEST_F(LearnerParts, of_one_algorithm_are_that_algorithm) {
  for (const char* name : {"gspo", "dr_grpo aggregation=seq_mean_token_sum"}) {
    Learner together = learner(), apart = learner();
    const Algorithm plain = algorithm_with("gspo", {std::string("a=") + name}).parts[0];
    Algorithm split = plain;
    ASSERT_TRUE(set_parts(std::vector<std::string>{std::string("b=") + name, std::string("c=") + name}, split));
    const auto expected = together.reinforce(samples(), plain, kVersion);
    const auto step = apart.reinforce(samples(), split, kVersion);
    ASSERT_TRUE(expected && step);
    EXPECT_TRUE(expected->parts.empty());
    EXPECT_NEAR(step->loss, expected->loss, 1e-12) << name;
    EXPECT_NEAR(step->grad_norm, expected->grad_norm, 1e-6 * expected->grad_norm) << name;
    EXPECT_DOUBLE_EQ(step->ratio_mean, expected->ratio_mean);
  }
}

TEST_F(LearnerParts, with_a_weight_pull_as_much_harder) {
  // All of the batch is of part 1: its gradient alone is scaled.
  auto batch = samples();
  for (Sample& sample : batch) sample.part = 1;
  const auto once = step_of(batch, algorithm_with("dr_grpo", {"b=gspo"})),
             fourfold = step_of(batch, algorithm_with("dr_grpo", {"b=gspo weight=4"}));
  EXPECT_NEAR(fourfold.grad_norm, 4 * once.grad_norm, 1e-5 * fourfold.grad_norm);
  EXPECT_NEAR(fourfold.loss, 4 * once.loss, 1e-12);
  EXPECT_EQ(fourfold.parts.at("b").at("loss"), once.parts.at("b").at("loss"));
  EXPECT_FALSE(fourfold.parts.contains("others")) << "a part without samples says nothing";
}

TEST_F(LearnerParts, share_one_critic_which_looks_at_their_samples_alone) {
  for (const BatchUpdates& updates : {BatchUpdates{}, BatchUpdates{.epochs = 1, .minibatches = 2, .seed = 4}}) {
    const auto step = step_of(samples(), algorithm_with("grpo", {"b=ppo"}), updates);
    EXPECT_TRUE(step.of_loss.contains("value_loss"));
    EXPECT_TRUE(step.of_loss.contains("explained_variance"));
  }
  const Algorithm mixed = algorithm_with("grpo", {"b=ppo"});
  Learner alone = learner();
  Algorithm ppo = mixed.parts[0];
  ASSERT_TRUE(alone.prepare(ppo));
  EXPECT_DOUBLE_EQ(step_of(samples(), mixed).of_loss.at("value_loss"),
                   alone.reinforce(of_part(1), ppo, kVersion)->of_loss.at("value_loss"));
}

TEST_F(LearnerParts, unknown_to_the_algorithm_are_those_of_the_run) {
  auto batch = samples();
  for (Sample& sample : batch) sample.part = 9;
  EXPECT_EQ(step_of(batch, *algorithm_named("grpo")).loss, step_of(samples(), *algorithm_named("grpo")).loss);
}

}  // namespace
}  // namespace tandem::trainer
