// Each family through the trainer's code: the engine's bits forward, and backward the gradients of transformers.
#include <cmath>

#include "tests/model/engine_logprobs.h"
#include "trainer/learn/learner.h"

namespace tandem::trainer {
namespace {

class FamilyTape : public testing::TestWithParam<const char*> {
 protected:
  static std::vector<std::vector<int32_t>> samples() {
    std::vector<std::vector<int32_t>> all;
    const Json expected = model::expected_of(GetParam());
    for (const Json& item : expected["cases"]) all.push_back(item["tokens"].get<std::vector<int32_t>>());
    // Branches in the middle of a page, at its end, and none.
    all.push_back(all[3]), all.push_back(all[3]), all.push_back(all[3]);
    all[4].resize(40), all[5].resize(64);
    all[4].insert(all[4].end(), all[2].begin(), all[2].end());
    all[5].insert(all[5].end(), all[1].begin(), all[1].end());
    return all;
  }
  static model::Weights load(kernels::Stream& stream, model::WeightFormat format = model::WeightFormat::kBf16) {
    auto weights = model::load_weights(model::golden_model(GetParam()), true, format);
    EXPECT_TRUE(weights) << weights.error().to_string();
    EXPECT_TRUE(weights->pack(stream));
    return std::move(*weights);
  }
};
INSTANTIATE_TEST_SUITE_P(Golden, FamilyTape, testing::ValuesIn(model::kGoldenModels), model::model_name);

TEST_P(FamilyTape, a_tree_of_samples_gives_each_the_bits_that_the_engine_gives_it_alone) {
  const auto isas = kernels::supported_isas();
  std::vector<std::pair<kernels::Isa, model::WeightFormat>> machines;
  for (const kernels::Isa isa : isas) machines.emplace_back(isa, model::WeightFormat::kBf16);
  for (const auto format : {model::WeightFormat::kFp8, model::WeightFormat::kMxfp8})
    machines.emplace_back(isas.back(), format);
  for (const auto& [isa, format] : machines) {
    auto stream = std::move(*kernels::Stream::cpu(2, isa));
    const auto weights = load(stream, format);
    const auto all = samples();
    const TokenTree tree = merge(std::vector<std::span<const int32_t>>(all.begin(), all.end()));
    struct Wanted {
      TokenPick pick;
      size_t sample, place;
    };
    std::vector<Wanted> wanted;
    for (size_t s = 0; s < all.size(); ++s) {
      const auto rows = tree.rows_of(static_cast<int>(s), all[s].size());
      for (size_t i = 0; i + 1 < all[s].size(); ++i) wanted.push_back({{rows[i], all[s][i + 1]}, s, i});
    }
    std::stable_sort(wanted.begin(), wanted.end(),
                     [](const Wanted& a, const Wanted& b) { return a.pick.row < b.pick.row; });
    std::vector<TokenPick> picks;
    for (const Wanted& w : wanted) picks.push_back(w.pick);
    Tape tape(weights.config(), weights.config().max_positions);
    const auto logprobs = *tape.forward(stream, weights, tree, picks);
    std::vector<std::vector<float>> alone;
    for (const auto& sample : all) alone.push_back(model::engine_logprobs(stream, weights, sample, 37));
    for (size_t i = 0; i < wanted.size(); ++i) {
      ASSERT_EQ(logprobs[i], alone[wanted[i].sample][wanted[i].place])
          << to_string(isa) << " " << model::to_string(format) << ", sample " << wanted[i].sample << ", position "
          << wanted[i].place;
    }
  }
}

// The mean log-probability of one sequence: of every tensor the norm and one projection.
TEST_P(FamilyTape, the_gradient_of_every_tensor_is_that_of_transformers) {
  auto stream = std::move(*kernels::Stream::cpu(2)), single = std::move(*kernels::Stream::cpu(1));
  const auto weights = load(stream);
  const Json expected = model::expected_of(GetParam());
  const auto tokens = expected["cases"].back()["tokens"].get<std::vector<int32_t>>();
  const std::span<const int32_t> view = tokens;
  const TokenTree tree = merge(std::span(&view, 1));
  std::vector<TokenPick> picks;
  for (size_t i = 0; i + 1 < tokens.size(); ++i) picks.push_back({static_cast<int32_t>(i), tokens[i + 1]});
  const std::vector<float> gradients(picks.size(), 1.0f / static_cast<float>(picks.size()));
  const auto gradient = [&](kernels::Stream& cpu, std::span<const uint8_t> learned = {}) {
    std::vector<float> grads(weights.layout().elements, 0);
    Tape tape(weights.config(), weights.config().max_positions);
    EXPECT_TRUE(tape.forward(cpu, weights, tree, picks));
    EXPECT_TRUE(tape.backward(gradients, model::slice_of("gradients", std::span(grads)), nullptr, learned));
    return grads;
  };
  const auto grads = gradient(stream);
  EXPECT_EQ(grads, gradient(single)) << "the threads show";
  const auto& parameters = weights.layout().parameters;
  for (const size_t wanted : {0, 1}) {
    std::vector<uint8_t> learned(parameters.size());
    for (size_t i = 0; i < learned.size(); ++i) learned[i] = i % 2 == wanted;
    const auto some = gradient(stream, learned);
    for (size_t i = 0; i < learned.size(); ++i) {
      const std::span expected(grads.data() + parameters[i].offset, parameters[i].elements());
      const auto found = std::span(some).subspan(parameters[i].offset, parameters[i].elements());
      const bool untouched = std::ranges::all_of(found, [](float value) { return value == 0; });
      EXPECT_TRUE(learned[i] != 0 ? std::ranges::equal(found, expected) : untouched) << parameters[i].name;
    }
  }
  size_t compared = 0;
  for (const model::Parameter& p : weights.layout().parameters) {
    if (p.split) continue;
    for (const model::ParameterPart& part : p.parts) {
      const float* start = grads.data() + p.offset + static_cast<size_t>(part.first_row) * p.columns;
      double squares = 0, dot = 0;
      for (size_t i = 0; i < static_cast<size_t>(part.rows) * p.columns; ++i) {
        squares += double{start[i]} * start[i];
        dot += start[i] * std::cos(static_cast<double>(i));
      }
      const Json& exact = expected["gradients"].at(part.checkpoint_name);
      const double norm = exact[0].get<double>();
      // Activations and their gradients are rounded to bf16 at every step of both ways.
      EXPECT_NEAR(std::sqrt(squares), norm, 0.06 * norm + 1e-6) << part.checkpoint_name;
      EXPECT_NEAR(dot, exact[1].get<double>(), 0.12 * norm + 1e-6) << part.checkpoint_name;
      ++compared;
    }
  }
  EXPECT_EQ(compared, expected["gradients"].size());
}

TEST_P(FamilyTape, the_gradient_of_a_tree_is_the_sum_over_its_samples) {
  auto stream = std::move(*kernels::Stream::cpu(2));
  const auto weights = load(stream);
  const auto all = samples();
  const size_t elements = weights.layout().elements;
  const auto gradient = [&](std::span<const std::vector<int32_t>> chosen) {
    const TokenTree tree = merge(std::vector<std::span<const int32_t>>(chosen.begin(), chosen.end()));
    std::vector<std::pair<TokenPick, float>> wanted;
    for (size_t s = 0; s < chosen.size(); ++s) {
      const auto rows = tree.rows_of(static_cast<int>(s), chosen[s].size());
      const float weight = 0.1f * static_cast<float>(chosen[s].size() % 7) - 0.25f;
      for (size_t i = 0; i + 1 < chosen[s].size(); ++i) wanted.push_back({{rows[i], chosen[s][i + 1]}, weight});
    }
    std::stable_sort(wanted.begin(), wanted.end(),
                     [](const auto& a, const auto& b) { return a.first.row < b.first.row; });
    std::vector<TokenPick> picks;
    std::vector<float> gradients, grads(elements, 0);
    for (const auto& [pick, gradient] : wanted) picks.push_back(pick), gradients.push_back(gradient);
    Tape tape(weights.config(), weights.config().max_positions);
    EXPECT_TRUE(tape.forward(stream, weights, tree, picks));
    EXPECT_TRUE(tape.backward(gradients, model::slice_of("gradients", std::span(grads))));
    return grads;
  };
  const auto whole = gradient(all);
  std::vector<double> summed(elements, 0);
  for (const auto& sample : all) {
    const auto part = gradient(std::span(&sample, 1));
    for (size_t i = 0; i < elements; ++i) summed[i] += part[i];
  }
  double error = 0, norm = 0;
  for (size_t i = 0; i < elements; ++i) error += std::pow(whole[i] - summed[i], 2), norm += summed[i] * summed[i];
  EXPECT_LT(std::sqrt(error / norm), 0.02);
}

TEST_P(FamilyTape, steps_of_a_learner_learn_a_sequence_with_every_kind_of_parameter) {
  auto learner = std::move(*Learner::create(std::move(*model::load_weights(model::golden_model(GetParam()), true)),
                                            std::move(*kernels::Stream::cpu(2)),
                                            {.learning_rate = {.peak = 2e-3}, .weight_decay = 0.1}));
  const std::vector<kernels::bf16> before(learner.weights().flat().begin(), learner.weights().flat().end());
  std::vector<Sample> batch;
  for (const auto& tokens : samples()) {
    batch.push_back({.tokens = tokens, .trained = std::vector<uint8_t>(tokens.size(), 1)});
  }
  const double first = learner.imitate(batch)->loss;
  for (int step = 0; step < 8; ++step) ASSERT_TRUE(learner.imitate(batch));
  EXPECT_LT(*learner.evaluate(batch), 0.8 * first);
  for (const model::Parameter& p : learner.weights().layout().parameters) {
    size_t moved = 0;
    for (size_t i = 0; i < p.elements(); ++i) moved += learner.weights().flat()[p.offset + i] != before[p.offset + i];
    if (p.split)
      EXPECT_EQ(moved, 0u) << p.name;
    else
      EXPECT_GT(moved, p.elements() / 4) << p.name;
  }
}

}  // namespace
}  // namespace tandem::trainer
