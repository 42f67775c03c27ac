#include "kernels/transformer_ops.h"

#include <cmath>
#include <cstring>
#include <map>

#include "kernels/lm_head.h"
#include "kernels/reference/lm_head.h"
#include "kernels/reference/transformer_ops.h"
#include "kernels/sampling.h"
#include "tests/kernels/support.h"

namespace tandem::kernels {
namespace {

class OpsTest : public EachIsa {};
FOR_EACH_ISA(OpsTest);

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
  const auto exact = reference::rms_norm_backward(x, weight, grad, 1e-5);
  EXPECT_LT(relative_error(out, reference::rms_norm(x, weight, 1e-5)), 0x1p-8);
  EXPECT_LT(relative_error(grad_x, exact.x), 0x1p-8);
  for (int i = 0; i < width; ++i) EXPECT_NEAR(grad_weight[i], exact.weight[i], 1e-3);
}

TEST_P(OpsTest, head_norm_is_rms_norm_of_each_head_and_so_is_its_gradient) {
  Stream cpu = stream(), three = stream(3);
  const int rows = 70, heads = 3, size = 72, stride = 300;
  const auto x = random_bf16(rows * stride, 1), weight = random_bf16(size, 2), grad = random_bf16(rows * stride, 3);
  auto out = x, grad_x = grad;
  std::vector<float> grad_weight(size, 0);
  const HeadNormBackward back{.x = x.data(),
                              .grad = grad_x.data(),
                              .stride = stride,
                              .weight = weight.data(),
                              .grad_weight = grad_weight.data(),
                              .epsilon = 1e-5f,
                              .rows = rows,
                              .heads = heads,
                              .head_size = size};
  ASSERT_TRUE(head_norm(cpu, {.x = out.data(),
                              .stride = stride,
                              .weight = weight.data(),
                              .epsilon = 1e-5f,
                              .rows = rows,
                              .heads = heads,
                              .head_size = size}));
  ASSERT_TRUE(head_norm_backward(cpu, back));
  std::vector<bf16> heads_of_x, heads_of_grad;
  for (int row = 0; row < rows; ++row) {
    heads_of_x.insert(heads_of_x.end(), &x[row * stride], &x[row * stride] + heads * size);
    heads_of_grad.insert(heads_of_grad.end(), &grad[row * stride], &grad[row * stride] + heads * size);
  }
  std::vector<bf16> dense(heads_of_x.size()), dense_grad(heads_of_x.size());
  std::vector<float> dense_weight(size, 0);
  ASSERT_TRUE(rms_norm(cpu, heads_of_x.data(), weight.data(), 1e-5f, rows * heads, size, dense.data()));
  ASSERT_TRUE(rms_norm_backward(cpu, {.x = heads_of_x.data(),
                                      .weight = weight.data(),
                                      .grad_out = heads_of_grad.data(),
                                      .grad_x = dense_grad.data(),
                                      .grad_weight = dense_weight.data(),
                                      .epsilon = 1e-5f,
                                      .rows = rows * heads,
                                      .width = size}));
  for (int row = 0; row < rows; ++row) {
    ASSERT_TRUE(same_bits(&out[row * stride], &dense[row * heads * size], heads * size));
    ASSERT_TRUE(same_bits(&grad_x[row * stride], &dense_grad[row * heads * size], heads * size));
    ASSERT_TRUE(same_bits(&out[row * stride + heads * size], &x[row * stride + heads * size], stride - heads * size));
  }
  for (int i = 0; i < size; ++i) EXPECT_NEAR(grad_weight[i], dense_weight[i], 1e-3);
  auto again = grad;
  std::vector<float> weight_again(size, 0);
  auto with_three = back;
  with_three.grad = again.data();
  with_three.grad_weight = weight_again.data();
  ASSERT_TRUE(head_norm_backward(three, with_three));
  EXPECT_TRUE(same_bits(again.data(), grad_x.data(), again.size()));
  EXPECT_EQ(weight_again, grad_weight);
}

TEST_P(OpsTest, sums_of_rows_are_added_with_the_same_bits_by_any_threads) {
  Stream one = stream(1), three = stream(3);
  const int rows = 150, width = 41, stride = 50;
  const auto x = random_bf16(rows * stride, 1);
  const auto start = random_floats(width, 2);
  auto sums = start, again = start;
  ASSERT_TRUE(sum_rows(one, {.x = x.data(), .stride = stride, .out = sums.data(), .rows = rows, .width = width}));
  ASSERT_TRUE(sum_rows(three, {.x = x.data(), .stride = stride, .out = again.data(), .rows = rows, .width = width}));
  EXPECT_EQ(sums, again);
  for (int i = 0; i < width; ++i) {
    double exact = start[i];
    for (int row = 0; row < rows; ++row) exact += to_float(x[row * stride + i]);
    EXPECT_NEAR(sums[i], exact, 1e-4);
  }
}

// Four rows of three heads of 64 at these positions, all of a head rotated.
const std::vector<int32_t> kPositions = {0, 1, 50, 99};
Rope turn_of(std::vector<bf16>& x, const std::vector<float>& table) {
  return {.x = x.data(),
          .stride = 3 * 64,
          .positions = kPositions,
          .table = table.data(),
          .table_positions = 100,
          .rows = 4,
          .heads = 3,
          .head_size = 64,
          .rope_dim = 64};
}

TEST_P(OpsTest, rope_turns_each_head_by_its_position) {
  Stream cpu = stream();
  const auto x = random_bf16(4 * 3 * 64, 6);
  const auto table = rope_table(100, 64, 10000);
  auto out = x;
  ASSERT_TRUE(rope(cpu, turn_of(out, table)));
  std::vector<double> exact;
  for (int head = 0; head < 4 * 3; ++head) {
    const auto one = reference::rope(std::span(x).subspan(head * 64, 64), kPositions[head / 3], 10000);
    exact.insert(exact.end(), one.begin(), one.end());
  }
  EXPECT_LT(relative_error(out, exact), 0x1p-8);
}

TEST_P(OpsTest, rope_with_inverse_is_where_it_was) {
  Stream cpu = stream();
  const auto x = random_bf16(4 * 3 * 64, 6);
  auto out = x;
  const auto table = rope_table(100, 64, 10000);
  Rope turn = turn_of(out, table);
  ASSERT_TRUE(rope(cpu, turn));
  EXPECT_TRUE(same_bits(out.data(), x.data(), 3 * 64)) << "position 0 turns nothing";
  EXPECT_FALSE(same_bits(out.data(), x.data(), x.size()));
  turn.inverse = true;
  ASSERT_TRUE(rope(cpu, turn));
  for (size_t i = 0; i < x.size(); ++i) EXPECT_NEAR(to_float(out[i]), to_float(x[i]), 0.03);
  turn.table_positions = 99;
  EXPECT_EQ(rope(cpu, turn).message(), "rope: position 99 is outside the table of 99");
  turn.rope_dim = 66;
  EXPECT_EQ(rope(cpu, turn).message(), "rope: rope_dim must be even and at most head_size");
}

TEST_P(OpsTest, rope_of_a_part_leaves_the_rest_and_interleaved_pairs_are_the_same_pairs_side_by_side) {
  Stream cpu = stream();
  constexpr int kRopeDim = 24;
  const auto x = random_bf16(4 * 3 * 64, 6);
  const auto table = rope_table(100, kRopeDim, 10000);
  auto halves = x, interleaved = x;
  for (int head = 0; head < 4 * 3; ++head) {
    for (int i = 0; i < kRopeDim / 2; ++i) {
      interleaved[head * 64 + 2 * i] = x[head * 64 + i];
      interleaved[head * 64 + 2 * i + 1] = x[head * 64 + kRopeDim / 2 + i];
    }
  }
  Rope turn = turn_of(halves, table);
  turn.rope_dim = kRopeDim;
  ASSERT_TRUE(rope(cpu, turn));
  turn.x = interleaved.data();
  turn.interleaved = true;
  ASSERT_TRUE(rope(cpu, turn));
  for (int head = 0; head < 4 * 3; ++head) {
    const bf16* start = &halves[head * 64];
    EXPECT_TRUE(same_bits(start + kRopeDim, &x[head * 64 + kRopeDim], 64 - kRopeDim));
    EXPECT_TRUE(same_bits(start + kRopeDim, &interleaved[head * 64 + kRopeDim], 64 - kRopeDim));
    const auto exact = reference::rope(std::span(x).subspan(head * 64, kRopeDim), kPositions[head / 3], 10000);
    EXPECT_LT(relative_error(std::vector<bf16>(start, start + kRopeDim), exact), 0x1p-8);
    for (int i = 0; i < kRopeDim / 2; ++i) {
      EXPECT_EQ(interleaved[head * 64 + 2 * i].bits, start[i].bits);
      EXPECT_EQ(interleaved[head * 64 + 2 * i + 1].bits, start[kRopeDim / 2 + i].bits);
    }
  }
}

TEST_P(OpsTest, rope_in_fp32_rounds_both_products_of_any_number_of_pairs) {
  Stream cpu = stream();
  const auto x = random_floats(4 * 3 * 64, 9);
  for (int rope_dim = 2; rope_dim <= 64; rope_dim += 2) {
    const auto table = rope_table(100, rope_dim, 10000);
    for (const bool interleaved : {false, true}) {
      auto out = x, exact = x;
      const int apart = interleaved ? 1 : rope_dim / 2, step = interleaved ? 2 : 1;
      for (int head = 0; head < 4 * 3; ++head) {
        for (int i = 0; i < rope_dim / 2; ++i) {
          const float* turn = &table[static_cast<size_t>(kPositions[head / 3]) * rope_dim + i * 2];
          float &a = exact[head * 64 + i * step], &b = exact[head * 64 + i * step + apart];
          const volatile float ac = a * turn[0], bs = b * turn[1], bc = b * turn[0], as = a * turn[1];
          a = ac - bs;
          b = bc + as;
        }
      }
      ASSERT_TRUE(rope(cpu, BasicRope<float>{.x = out.data(),
                                             .stride = 3 * 64,
                                             .positions = kPositions,
                                             .table = table.data(),
                                             .table_positions = 100,
                                             .rows = 4,
                                             .heads = 3,
                                             .head_size = 64,
                                             .rope_dim = rope_dim,
                                             .interleaved = interleaved}));
      EXPECT_EQ(out, exact) << rope_dim << (interleaved ? " side by side" : "");
    }
  }
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
  std::vector<float> scales;  // some rows are as the model has them
  for (int row = 0; row < rows; ++row) scales.push_back(logit_scale_at(0.4f + 0.2f * static_cast<float>(row % 5)));
  ASSERT_TRUE(lm_head(cpu,
                      {.hidden = hidden.data(),
                       .head = head.data(),
                       .rows = rows,
                       .width = width,
                       .vocabulary = vocabulary,
                       .logits = logits.data(),
                       .log_sum = log_sum.data(),
                       .argmax = argmax.data(),
                       .logit_scales = scales.data()},
                      picks, logprobs));
  for (int row = 0; row < rows; ++row) {
    const auto exact = reference::distribution(std::span(hidden).subspan(row * width, width), weight, scales[row]);
    EXPECT_NEAR(log_sum[row], exact.log_sum, 1e-4);
    EXPECT_NEAR(logprobs[row * 2], exact.logprob(row * 100), 1e-4);
    EXPECT_NEAR(exact.logits[argmax[row]], *std::max_element(exact.logits.begin(), exact.logits.end()), 1e-4);

    float alone[2], alone_sum;
    const TokenPick mine[] = {{0, row * 100}, {0, 4999}};
    Stream single = stream(1);
    ASSERT_TRUE(lm_head(single,
                        {.hidden = hidden.data() + row * width,
                         .head = head.data(),
                         .rows = 1,
                         .width = width,
                         .vocabulary = vocabulary,
                         .log_sum = &alone_sum,
                         .logit_scales = scales[row] == 1 ? nullptr : &scales[row]},
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
  std::vector<bf16> head(packed_size(vocabulary, width)), transposed(packed_size(width, vocabulary));
  ASSERT_TRUE(pack(cpu, weight.data(), vocabulary, width, head.data()));
  ASSERT_TRUE(pack_transposed(cpu, weight.data(), vocabulary, width, transposed.data()));
  const std::vector<TokenPick> picks = {{0, 5}, {0, 2599}, {2, 70}, {4, 2599}};
  const std::vector<float> gradients = {0.5f, -0.25f, 1, 2}, scales = {0.5f, 1, 1 / 0.7f, 1, 1 / 1.3f};
  std::vector<float> log_sum(rows), logprobs(4), grad_hidden(rows * width, 0), grad_head(vocabulary * width, 0),
      entropy(rows);
  ASSERT_TRUE(lm_head(cpu,
                      {.hidden = hidden.data(),
                       .head = head.data(),
                       .rows = rows,
                       .width = width,
                       .vocabulary = vocabulary,
                       .log_sum = log_sum.data(),
                       .logit_scales = scales.data()},
                      picks, logprobs));
  ASSERT_TRUE(lm_head_backward(cpu,
                               {.hidden = hidden.data(),
                                .head = head.data(),
                                .head_transposed = transposed.data(),
                                .log_sum = log_sum.data(),
                                .rows = rows,
                                .width = width,
                                .vocabulary = vocabulary,
                                .grad_hidden = grad_hidden.data(),
                                .grad_head = grad_head.data(),
                                .logit_scales = scales.data()},
                               picks, gradients, entropy));
  std::vector<double> exact_hidden(rows * width, 0), exact_head(vocabulary * width, 0);
  for (int row = 0; row < rows; ++row) {
    const auto exact = reference::distribution(std::span(hidden).subspan(row * width, width), weight, scales[row]);
    std::vector<reference::TokenGradient> mine;
    for (size_t i = 0; i < picks.size(); ++i) {
      if (picks[i].row == row) mine.push_back({picks[i].token, gradients[i]});
    }
    const auto gradient = reference::logit_gradient(exact, mine);
    EXPECT_NEAR(entropy[row], reference::entropy(exact), 1e-3);
    for (int v = 0; v < vocabulary; ++v) {
      for (int i = 0; i < width; ++i) {
        exact_hidden[row * width + i] += scales[row] * gradient[v] * to_float(weight[v * width + i]);
        exact_head[v * width + i] += scales[row] * gradient[v] * to_float(hidden[row * width + i]);
      }
    }
  }
  EXPECT_LT(relative_error(grad_hidden, exact_hidden), 0x1p-7);
  EXPECT_LT(relative_error(grad_head, exact_head), 0x1p-7);

  std::vector<float> alone(rows * width, 0);
  ASSERT_TRUE(lm_head_backward(cpu,
                               {.hidden = hidden.data(),
                                .head = head.data(),
                                .head_transposed = transposed.data(),
                                .log_sum = log_sum.data(),
                                .rows = rows,
                                .width = width,
                                .vocabulary = vocabulary,
                                .grad_hidden = alone.data(),
                                .logit_scales = scales.data()},
                               picks, gradients, {}));
  EXPECT_EQ(alone, grad_hidden) << "without the head's";
}

TEST_P(OpsTest, embeddings_are_looked_up_and_their_gradients_added_in_the_order_of_rows) {
  Stream cpu = stream(3);
  const int vocabulary = 10, width = 200;
  const std::vector<int32_t> ids = {3, 9, 3, 0, 3};
  const auto table = random_bf16(vocabulary * width, 13), grad = random_bf16(ids.size() * width, 14);
  std::vector<bf16> out(ids.size() * width);
  auto sums = random_floats(vocabulary * width, 15), expected = sums;
  ASSERT_TRUE(embed(cpu, table.data(), vocabulary, width, ids, out.data()));
  ASSERT_TRUE(embed_backward(cpu, grad.data(), width, ids, sums.data()));
  for (size_t row = 0; row < ids.size(); ++row) {
    EXPECT_TRUE(same_bits(&out[row * width], &table[ids[row] * width], width)) << row;
    for (int i = 0; i < width; ++i) expected[ids[row] * width + i] += to_float(grad[row * width + i]);
  }
  EXPECT_EQ(sums, expected);
  EXPECT_EQ(embed(cpu, table.data(), vocabulary, width, std::vector<int32_t>{10}, out.data()).code(), Code::kInvalid);
  const bf16* none = nullptr;
  EXPECT_EQ(embed(cpu, none, vocabulary, width, ids, out.data()).code(), Code::kInvalid);
}

TEST_P(OpsTest, add_rounds_each_sum_once) {
  Stream cpu = stream();
  const size_t count = 1003;
  const auto x = random_bf16(count, 16), y = random_bf16(count, 17);
  auto sums = x;
  ASSERT_TRUE(add(cpu, y.data(), count, sums.data()));
  for (size_t i = 0; i < count; ++i) ASSERT_EQ(sums[i].bits, to_bf16(to_float(x[i]) + to_float(y[i])).bits) << i;
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

TEST(Sampling, only_allowed_tokens_are_the_distribution_and_the_models_own_logprob_stays) {
  const std::vector<float> logits = {std::log(0.5f), std::log(0.3f), std::log(0.15f), std::log(0.05f)};
  const std::vector<uint64_t> allowed = {0b1010 | uint64_t{1} << 40};  // 40 is no token of the model
  const auto draw = [&](const SamplingSettings& settings, uint64_t position) {
    return sample_allowed(logits, allowed, 0, settings, 7, position);
  };
  std::map<int32_t, int> counts;
  for (int i = 0; i < 4000; ++i) {
    const Sampled drawn = draw({}, i);
    ++counts[drawn.token];
    EXPECT_FLOAT_EQ(drawn.logprob, logits[drawn.token]);
    EXPECT_NEAR(drawn.sampling_logprob, std::log(drawn.token == 1 ? 0.3 / 0.35 : 0.05 / 0.35), 1e-6);
  }
  EXPECT_EQ(counts.size(), 2u);
  EXPECT_NEAR(counts[1], 4000 * 0.3 / 0.35, 100);
  EXPECT_EQ(draw({.temperature = 0}, 0).token, 1);
  EXPECT_FLOAT_EQ(draw({.temperature = 0}, 0).logprob, std::log(0.3f));
  EXPECT_EQ(draw({.top_k = 1}, 3).token, 1);  // of those that are allowed
  EXPECT_FLOAT_EQ(draw({.top_k = 1}, 3).sampling_logprob, 0);
}

}  // namespace
}  // namespace tandem::kernels
