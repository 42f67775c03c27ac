#include "kernels/transformer_ops.h"

#include <cmath>
#include <cstring>
#include <map>

#include "kernels/lm_head.h"
#include "kernels/optimizer.h"
#include "kernels/sampling.h"
#include "tests/kernels/support.h"

namespace tandem::kernels {
namespace {

class OpsTest : public EachIsa {};
FOR_EACH_ISA(OpsTest);

double relative_error(const std::vector<bf16>& got, const std::vector<double>& exact) {
  double error = 0, norm = 0;
  for (size_t i = 0; i < exact.size(); ++i) {
    error += std::pow(to_float(got[i]) - exact[i], 2);
    norm += exact[i] * exact[i];
  }
  return std::sqrt(error / norm);
}

TEST_P(OpsTest, rms_norm_matches_the_formula_and_its_gradient) {
  Stream cpu = stream();
  const int rows = 70, width = 100;  // not a multiple of 16
  const auto x = random_bf16(rows * width, 1), weight = random_bf16(width, 2), grad = random_bf16(rows * width, 3);
  std::vector<bf16> out(rows * width), grad_x(rows * width);
  std::vector<float> grad_weight(width, 0);
  ASSERT_TRUE(rms_norm(cpu, x.data(), weight.data(), 1e-5f, rows, width, out.data()));
  ASSERT_TRUE(rms_norm_backward(cpu, {.x = x.data(),
                                      .weight = weight.data(),
                                      .grad_out = grad.data(),
                                      .grad_x = grad_x.data(),
                                      .grad_weight = grad_weight.data(),
                                      .epsilon = 1e-5f,
                                      .rows = rows,
                                      .width = width}));
  std::vector<double> exact(rows * width), exact_grad(rows * width), exact_weight(width, 0);
  for (int row = 0; row < rows; ++row) {
    const auto at = [&](const std::vector<bf16>& v, int i) {
      return static_cast<double>(to_float(v[row * width + i]));
    };
    double squares = 0, dot = 0;
    for (int i = 0; i < width; ++i) squares += at(x, i) * at(x, i);
    const double inverse = 1 / std::sqrt(squares / width + 1e-5);
    for (int i = 0; i < width; ++i) dot += to_float(weight[i]) * at(grad, i) * at(x, i);
    for (int i = 0; i < width; ++i) {
      exact[row * width + i] = at(x, i) * inverse * to_float(weight[i]);
      exact_grad[row * width + i] =
          inverse * (to_float(weight[i]) * at(grad, i) - at(x, i) * inverse * inverse * dot / width);
      exact_weight[i] += at(grad, i) * at(x, i) * inverse;
    }
  }
  EXPECT_LT(relative_error(out, exact), 0x1p-8);
  EXPECT_LT(relative_error(grad_x, exact_grad), 0x1p-8);
  for (int i = 0; i < width; ++i) EXPECT_NEAR(grad_weight[i], exact_weight[i], 1e-3);
}

TEST_P(OpsTest, swiglu_matches_the_formula_and_its_gradient) {
  Stream cpu = stream();
  const int rows = 9, width = 40;
  const auto gate_up = random_bf16(rows * 2 * width, 4, 3), grad = random_bf16(rows * width, 5);
  std::vector<bf16> out(rows * width), slope(rows * 2 * width);
  ASSERT_TRUE(swiglu(cpu, gate_up.data(), rows, width, out.data()));
  ASSERT_TRUE(swiglu_backward(cpu, gate_up.data(), grad.data(), rows, width, slope.data()));
  std::vector<double> exact(rows * width), exact_slope(rows * 2 * width);
  for (int row = 0; row < rows; ++row) {
    for (int i = 0; i < width; ++i) {
      const double gate = to_float(gate_up[row * 2 * width + i]), up = to_float(gate_up[row * 2 * width + width + i]);
      const double s = 1 / (1 + std::exp(-gate)), incoming = to_float(grad[row * width + i]);
      exact[row * width + i] = gate * s * up;
      exact_slope[row * 2 * width + i] = incoming * up * s * (1 + gate * (1 - s));
      exact_slope[row * 2 * width + width + i] = incoming * gate * s;
    }
  }
  EXPECT_LT(relative_error(out, exact), 0x1p-8);
  EXPECT_LT(relative_error(slope, exact_slope), 0x1p-8);
}

TEST_P(OpsTest, rope_turned_back_is_where_it_was) {
  Stream cpu = stream();
  const auto x = random_bf16(4 * 3 * 64, 6);
  auto turned = x;
  const auto table = rope_table(100, 64, 10000);
  const std::vector<int32_t> positions = {0, 1, 50, 99};
  ASSERT_TRUE(rope(cpu, turned.data(), 3 * 64, 4, 3, 64, positions, table.data(), 100));
  EXPECT_TRUE(same_bits(turned.data(), x.data(), 3 * 64)) << "position 0 turns nothing";
  EXPECT_FALSE(same_bits(turned.data(), x.data(), x.size()));
  ASSERT_TRUE(rope(cpu, turned.data(), 3 * 64, 4, 3, 64, positions, table.data(), 100, true));
  for (size_t i = 0; i < x.size(); ++i) EXPECT_NEAR(to_float(turned[i]), to_float(x[i]), 0.03);
  EXPECT_EQ(rope(cpu, turned.data(), 3 * 64, 1, 3, 64, std::vector<int32_t>{100}, table.data(), 100).code(),
            Code::kInvalid);
}

TEST_P(OpsTest, lm_head_matches_log_softmax_and_does_not_depend_on_the_batch) {
  Stream cpu = stream(2);
  const int rows = 40, width = 64, vocabulary = 5000;  // two slabs, the last panel partly padding
  const auto hidden = random_bf16(rows * width, 7), weight = random_bf16(vocabulary * width, 8, 0.3f);
  std::vector<bf16> head(packed_size(vocabulary, width));
  ASSERT_TRUE(pack(cpu, weight.data(), vocabulary, width, head.data()));
  std::vector<TokenPick> picks;
  for (int row = 0; row < rows; ++row) {
    picks.push_back({row, row * 100});
    picks.push_back({row, 4999});
  }
  std::vector<float> logprobs(picks.size()), log_sum(rows), logits(rows * padded_vocabulary(vocabulary));
  std::vector<int32_t> argmax(rows);
  ASSERT_TRUE(lm_head(cpu,
                      {.hidden = hidden.data(),
                       .head = head.data(),
                       .rows = rows,
                       .width = width,
                       .vocabulary = vocabulary,
                       .logits = logits.data(),
                       .log_sum = log_sum.data(),
                       .argmax = argmax.data()},
                      picks, logprobs));
  for (int row = 0; row < rows; ++row) {
    std::vector<double> exact(vocabulary, 0);
    double peak = -1e300, total = 0;
    for (int v = 0; v < vocabulary; ++v) {
      for (int i = 0; i < width; ++i)
        exact[v] += static_cast<double>(to_float(hidden[row * width + i])) * to_float(weight[v * width + i]);
      peak = std::max(peak, exact[v]);
    }
    for (const double logit : exact) total += std::exp(logit - peak);
    const double sum = peak + std::log(total);
    EXPECT_NEAR(log_sum[row], sum, 1e-4);
    EXPECT_NEAR(logprobs[row * 2], exact[row * 100] - sum, 1e-4);
    EXPECT_NEAR(exact[argmax[row]], peak, 1e-4);

    float alone[2], alone_sum;
    const TokenPick mine[] = {{0, row * 100}, {0, 4999}};
    Stream single = stream(1);
    ASSERT_TRUE(lm_head(single,
                        {.hidden = hidden.data() + row * width,
                         .head = head.data(),
                         .rows = 1,
                         .width = width,
                         .vocabulary = vocabulary,
                         .log_sum = &alone_sum},
                        mine, alone));
    EXPECT_EQ(alone[0], logprobs[row * 2]);
    EXPECT_EQ(alone[1], logprobs[row * 2 + 1]);
    EXPECT_EQ(logits[row * padded_vocabulary(vocabulary) + 4999] - log_sum[row], alone[1]);
  }
}

TEST_P(OpsTest, lm_head_backward_matches_the_exact_gradient_and_entropy) {
  Stream cpu = stream();
  const int rows = 5, width = 64, vocabulary = 2600;
  const auto hidden = random_bf16(rows * width, 9), weight = random_bf16(vocabulary * width, 10, 0.2f);
  std::vector<bf16> head(packed_size(vocabulary, width)), turned(packed_size(width, vocabulary));
  ASSERT_TRUE(pack(cpu, weight.data(), vocabulary, width, head.data()));
  ASSERT_TRUE(pack_transposed(cpu, weight.data(), vocabulary, width, turned.data()));
  const std::vector<TokenPick> picks = {{0, 5}, {0, 2599}, {2, 70}, {4, 2599}};
  const std::vector<float> slopes = {0.5f, -0.25f, 1, 2};
  std::vector<float> log_sum(rows), logprobs(4), grad_hidden(rows * width, 0), grad_head(vocabulary * width, 0),
      entropy(rows);
  ASSERT_TRUE(lm_head(cpu,
                      {.hidden = hidden.data(),
                       .head = head.data(),
                       .rows = rows,
                       .width = width,
                       .vocabulary = vocabulary,
                       .log_sum = log_sum.data()},
                      picks, logprobs));
  ASSERT_TRUE(lm_head_backward(cpu,
                               {.hidden = hidden.data(),
                                .head = head.data(),
                                .head_transposed = turned.data(),
                                .log_sum = log_sum.data(),
                                .rows = rows,
                                .width = width,
                                .vocabulary = vocabulary,
                                .grad_hidden = grad_hidden.data(),
                                .grad_head = grad_head.data()},
                               picks, slopes, entropy));
  std::vector<double> exact_hidden(rows * width, 0), exact_head(vocabulary * width, 0);
  for (int row = 0; row < rows; ++row) {
    std::vector<double> d(vocabulary);
    double total = 0, exact_entropy = 0;
    for (size_t i = 0; i < picks.size(); ++i) total += picks[i].row == row ? slopes[i] : 0;
    for (int v = 0; v < vocabulary; ++v) {
      double logit = 0;
      for (int i = 0; i < width; ++i)
        logit += static_cast<double>(to_float(hidden[row * width + i])) * to_float(weight[v * width + i]);
      const double p = std::exp(logit - log_sum[row]);
      exact_entropy -= p * (logit - log_sum[row]);
      d[v] = -total * p;
      for (size_t i = 0; i < picks.size(); ++i) d[v] += picks[i].row == row && picks[i].token == v ? slopes[i] : 0;
    }
    EXPECT_NEAR(entropy[row], exact_entropy, 1e-3);
    for (int v = 0; v < vocabulary; ++v) {
      for (int i = 0; i < width; ++i) {
        exact_hidden[row * width + i] += d[v] * to_float(weight[v * width + i]);
        exact_head[v * width + i] += d[v] * to_float(hidden[row * width + i]);
      }
    }
  }
  double error = 0, norm = 0;
  for (size_t i = 0; i < exact_hidden.size(); ++i)
    error += std::pow(grad_hidden[i] - exact_hidden[i], 2), norm += exact_hidden[i] * exact_hidden[i];
  EXPECT_LT(std::sqrt(error / norm), 0x1p-7);
  error = norm = 0;
  for (size_t i = 0; i < exact_head.size(); ++i)
    error += std::pow(grad_head[i] - exact_head[i], 2), norm += exact_head[i] * exact_head[i];
  EXPECT_LT(std::sqrt(error / norm), 0x1p-7);
}

TEST_P(OpsTest, adamw_takes_the_published_step) {
  Stream cpu = stream();
  const size_t count = 19;
  const auto grad = random_floats(count, 11), start = random_floats(count, 12);
  auto master = start;
  std::vector<float> first(count, 0.1f), second(count, 0.2f);
  std::vector<bf16> weight(count);
  ASSERT_TRUE(adamw(cpu, {.grad = grad.data(),
                          .master = master.data(),
                          .first_moment = first.data(),
                          .second_moment = second.data(),
                          .weight = weight.data(),
                          .count = count,
                          .grad_scale = 0.5f,
                          .learning_rate = 0.01f,
                          .beta1 = 0.9f,
                          .beta2 = 0.95f,
                          .epsilon = 1e-8f,
                          .weight_decay = 0.1f,
                          .step = 3}));
  for (size_t i = 0; i < count; ++i) {
    const double g = grad[i] * 0.5, m = 0.9 * 0.1 + 0.1 * g, v = 0.95 * 0.2 + 0.05 * g * g;
    const double expected =
        start[i] * (1 - 0.001) - 0.01 * (m / (1 - std::pow(0.9, 3))) / (std::sqrt(v / (1 - std::pow(0.95, 3))) + 1e-8);
    EXPECT_NEAR(master[i], expected, 1e-6);
    EXPECT_EQ(weight[i].bits, to_bf16(master[i]).bits);
  }
}

// What lm_head would give the sampler for these logits.
Sampled sample_of(const std::vector<float>& logits, const SamplingSettings& settings, uint64_t seed,
                  uint64_t position) {
  std::vector<RunningSum> panels((logits.size() + kPanelColumns - 1) / kPanelColumns);
  for (size_t p = 0; p < panels.size(); ++p) {
    const size_t end = std::min(logits.size(), (p + 1) * kPanelColumns);
    for (size_t i = p * kPanelColumns; i < end; ++i) panels[p].maximum = std::max(panels[p].maximum, logits[i]);
    for (size_t i = p * kPanelColumns; i < end; ++i) panels[p].sum += std::exp(logits[i] - panels[p].maximum);
  }
  return sample(logits, panels, 0, settings, seed, position);
}

TEST(Sampling, draws_each_token_as_often_as_its_probability_in_every_panel) {
  std::vector<float> logits(200, -INFINITY);
  const std::map<int, double> probabilities = {{0, 0.4}, {63, 0.1}, {64, 0.2}, {130, 0.05}, {199, 0.25}};
  for (const auto& [token, p] : probabilities) logits[token] = static_cast<float>(std::log(p));
  std::map<int, int> seen;
  for (int i = 0; i < 20000; ++i) ++seen[sample_of(logits, {}, 42, i).token];
  ASSERT_EQ(seen.size(), probabilities.size());
  for (const auto& [token, p] : probabilities) EXPECT_NEAR(seen[token] / 20000.0, p, 0.015) << token;
}

TEST(Sampling, temperature_zero_takes_the_first_of_the_likeliest) {
  std::vector<float> logits(200, 0);
  logits[70] = logits[71] = logits[150] = 3;
  EXPECT_EQ(sample_of(logits, {.temperature = 0}, 1, 1).token, 70);
}

TEST(Sampling, truncation_never_draws_what_was_cut_off_and_reports_both_logprobs) {
  const std::vector<float> logits = {std::log(0.5f), std::log(0.3f), std::log(0.15f), std::log(0.05f)};
  for (int i = 0; i < 500; ++i) {
    EXPECT_LT(sample_of(logits, {.top_k = 2}, 7, i).token, 2);
    EXPECT_LT(sample_of(logits, {.top_p = 0.6f}, 7, i).token, 2);
    EXPECT_LT(sample_of(logits, {.min_p = 0.2f}, 7, i).token, 3);
  }
  const Sampled drawn = sample_of(logits, {.top_k = 1}, 7, 0);
  EXPECT_FLOAT_EQ(drawn.logprob, std::log(0.5f));
  EXPECT_FLOAT_EQ(drawn.sampling_logprob, 0);
}

}  // namespace
}  // namespace tandem::kernels
