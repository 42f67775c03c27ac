#include <cmath>

#include "kernels/cuda/lm_head.cuh"
#include "kernels/lm_head.h"
#include "tests/kernels/cuda_machines.h"

namespace tandem::kernels::cuda {
namespace {

constexpr int kRows = 6, kWidth = 18, kVocabulary = 4500;  // two slabs of panels, three of gradients; a part of a panel
constexpr int kPanels = (kVocabulary + 63) / 64;
constexpr size_t kWorkspace = size_t{kRows} * (kPanels * 12 + 2048 * 2);

// Two picks of a row, none of some, the last token of the vocabulary, the same token twice.
const std::vector<TandemCudaPick> kPicks = {{0, 5}, {0, 4499}, {2, 70}, {4, 4499}, {5, 4100}, {5, 4100}};
const std::vector<float> kGradients = {0.5f, -0.25f, 1, 2, 0.75f, 0.5f};
// The scales of policies at temperatures; a row at 1 among them.
const std::vector<float> kScales = {1 / 0.7f, 0.5f, 1, 2, 1 / 1.2f, 1 / 0.3f};

std::vector<bf16> hidden() { return random_bf16(kRows * kWidth, 1); }
std::vector<bf16> head() {
  auto weight = random_bf16(kVocabulary * kWidth, 2, 0.3f);
  // Two tokens with the same logits, so that ties are decided.
  std::copy_n(weight.begin() + 100 * kWidth, kWidth, weight.begin() + 4200 * kWidth);
  return weight;
}
template <typename Arguments>
void point(Machine& machine, Arguments& h) {
  h.hidden = machine.place(hidden());
  h.head = machine.place(head());
  h.picks = machine.place(kPicks);
  h.pick_count = kPicks.size();
  h.logit_scales = machine.place(kScales);
  h.rows = kRows;
  h.width = kWidth;
  h.vocabulary = kVocabulary;
  h.workspace = machine.room<char>(kWorkspace);
  h.workspace_bytes = kWorkspace;
}
TandemCudaLmHead forward(Machine& machine) {
  TandemCudaLmHead h{};
  point(machine, h);
  h.logits = machine.room<float>(kRows * kPanels * 64);
  h.log_sum = machine.room<float>(kRows);
  h.argmax = machine.room<int32_t>(kRows);
  h.panel_sums = machine.room<float>(kRows * kPanels * 2);
  h.logprobs = machine.room<float>(kPicks.size());
  return h;
}
TandemCudaLmHeadBackward backward(Machine& machine, const std::vector<float>& log_sum) {
  TandemCudaLmHeadBackward h{};
  point(machine, h);
  h.log_sum = machine.place(log_sum);
  h.grad_logprobs = machine.place(kGradients);
  h.grad_hidden = machine.place(random_floats(kRows * kWidth, 3));
  h.grad_head = machine.place(random_floats(kVocabulary * kWidth, 4));
  h.entropy = machine.room<float>(kRows);
  return h;
}

Bytes lm_head_case(Machine& machine) {
  const TandemCudaLmHead h = forward(machine);
  EXPECT_EQ(machine.run(h), 0);
  Bytes bytes;
  append(bytes, machine.fetch(h.logits, kRows * kPanels * 64));
  append(bytes, machine.fetch(h.log_sum, kRows));
  append(bytes, machine.fetch(h.argmax, kRows));
  append(bytes, machine.fetch(h.panel_sums, kRows * kPanels * 2));
  append(bytes, machine.fetch(h.logprobs, kPicks.size()));
  return bytes;
}
TANDEM_CUDA_CASE_TESTS(lm_head)

Bytes lm_head_backward_case(Machine& machine) {
  const TandemCudaLmHeadBackward h = backward(machine, std::vector<float>(kRows, 9.0f));
  EXPECT_EQ(machine.run(h), 0);
  Bytes bytes;
  append(bytes, machine.fetch(h.grad_hidden, kRows * kWidth));
  append(bytes, machine.fetch(h.grad_head, kVocabulary * kWidth));
  append(bytes, machine.fetch(h.entropy, kRows));
  return bytes;
}
TANDEM_CUDA_CASE_TESTS(lm_head_backward)

// On a stream whose kernels are `tensor`: all rows as above, and as many that they are of several tiles.
Bytes tensor_lm_head_case(Machine& machine) {
  Bytes bytes = lm_head_case(machine);
  for (const int rows : {17, 70, 130}) {
    TandemCudaLmHead h = forward(machine);
    h.rows = rows;
    h.vocabulary = 200;
    h.hidden = machine.place(random_bf16(static_cast<size_t>(rows) * kWidth, 5));
    h.workspace_bytes = lm_head_workspace(rows, h.vocabulary);
    h.workspace = machine.room<char>(h.workspace_bytes);
    h.logits = nullptr;
    std::vector<float> scales;
    for (int row = 0; row < rows; ++row) scales.push_back(logit_scale_at(0.5f + 0.01f * static_cast<float>(row)));
    h.logit_scales = rows == 70 ? machine.place(scales) : nullptr;
    h.log_sum = machine.room<float>(rows);
    h.argmax = machine.room<int32_t>(rows);
    h.panel_sums = machine.room<float>(static_cast<size_t>(rows) * 4 * 2);
    EXPECT_EQ(machine.run(h), 0);
    append(bytes, machine.fetch(h.log_sum, rows));
    append(bytes, machine.fetch(h.argmax, rows));
    append(bytes, machine.fetch(h.panel_sums, static_cast<size_t>(rows) * 4 * 2));
    append(bytes, machine.fetch(h.logprobs, kPicks.size()));
  }
  return bytes;
}
TANDEM_CUDA_TENSOR_TESTS(tensor_lm_head)
Bytes tensor_lm_head_backward_case(Machine& machine) { return lm_head_backward_case(machine); }
TANDEM_CUDA_TENSOR_TESTS(tensor_lm_head_backward)

float tensor_product(const std::vector<bf16>& a, size_t a_at, const std::vector<bf16>& b, size_t b_at, int count,
                     size_t a_step = 1, size_t b_step = 1) {
  std::vector<uint16_t> x, y;
  for (int i = 0; i < count; ++i) {
    x.push_back(a[a_at + i * a_step].bits);
    y.push_back(b[b_at + i * b_step].bits);
  }
  return tensor_chain<TensorBf16>(x.data(), y.data(), count);
}

TEST(CudaHost, a_tensor_lm_head_and_its_gradient_are_those_of_logits_by_chains_of_sixteen) {
  HostMachine machine(false, true);
  const TandemCudaLmHead h = forward(machine);
  ASSERT_EQ(machine.run(h), 0);
  const auto states = hidden(), weight = head();
  const auto logits = machine.fetch(h.logits, kRows * kPanels * 64), log_sum = machine.fetch(h.log_sum, kRows);
  const auto sums = machine.fetch(h.panel_sums, kRows * kPanels * 2);
  const auto argmax = machine.fetch(h.argmax, kRows);
  const auto logprobs = machine.fetch(h.logprobs, kPicks.size());
  for (int row = 0; row < kRows; ++row) {
    std::vector<PanelSum> slabs;
    for (int panel = 0; panel < kPanels; ++panel) {
      std::vector<float> terms(64);
      PanelSum expected{-infinity(), 0, panel * 64};
      for (int column = 0; column < 64; ++column) {
        const int token = panel * 64 + column;
        const float logit = token < kVocabulary
                                ? tensor_product(states, row * kWidth, weight, token * kWidth, kWidth) * kScales[row]
                                : -infinity();
        terms[column] = logit;
        ASSERT_EQ(logits[(row * kPanels + panel) * 64 + column], logit) << row << ", " << token;
        if (logit > expected.maximum) expected = {logit, 0, token};
      }
      for (float& term : terms) term = exponential(term - expected.maximum);
      expected.sum = sum_of_block(terms.data());
      ASSERT_EQ(sums[(row * kPanels + panel) * 2], expected.maximum);
      ASSERT_EQ(sums[(row * kPanels + panel) * 2 + 1], expected.sum) << row << ", " << panel;
      if (panel % kSlabPanels == 0) slabs.push_back({-infinity(), 0, 0});
      join(slabs.back(), expected);
    }
    PanelSum total = slabs[0];
    for (size_t i = 1; i < slabs.size(); ++i) join(total, slabs[i]);
    EXPECT_EQ(log_sum[row], log_of_sum(total.maximum, total.sum));
    EXPECT_EQ(argmax[row], total.best);
  }
  for (size_t i = 0; i < kPicks.size(); ++i)
    EXPECT_EQ(logprobs[i], logits[kPicks[i].row * kPanels * 64 + kPicks[i].token] - log_sum[kPicks[i].row]) << i;

  const TandemCudaLmHeadBackward back = backward(machine, log_sum);
  ASSERT_EQ(machine.run(back), 0);
  const auto entropy = machine.fetch(back.entropy, kRows),
             grad_hidden = machine.fetch(back.grad_hidden, kRows * kWidth);
  const auto grad_head = machine.fetch(back.grad_head, kVocabulary * kWidth);
  std::vector<bf16> grads(static_cast<size_t>(kRows) * kPanels * 64);
  for (int row = 0; row < kRows; ++row) {
    double sum = 0;
    for (int panel = 0; panel < kPanels; ++panel) {
      std::vector<float> terms(64);
      for (int column = 0; column < 64; ++column) {
        const size_t at = static_cast<size_t>(row * kPanels + panel) * 64 + column;
        const float logprob = logits[at] - log_sum[row], probability = exponential(logprob);
        terms[column] = probability > 0 ? probability * logprob : 0.0f;
        float given = 0, grad = 0;
        for (size_t i = 0; i < kPicks.size(); ++i) {
          if (kPicks[i].row == row) given = given + kGradients[i];
        }
        grad = probability * -given;
        for (size_t i = 0; i < kPicks.size(); ++i) {
          if (kPicks[i].row == row && kPicks[i].token == panel * 64 + column) grad = grad + kGradients[i];
        }
        grads[at] = to_bf16(grad * kScales[row]);
      }
      sum = sum + sum_of_block(terms.data());
    }
    EXPECT_EQ(entropy[row], static_cast<float>(-sum)) << row;
  }
  std::vector<float> expected = random_floats(kRows * kWidth, 3),
                     expected_head = random_floats(kVocabulary * kWidth, 4);
  for (int first = 0; first < kVocabulary; first += 2048) {
    const int columns = std::min(2048, kVocabulary - first);
    for (int row = 0; row < kRows; ++row) {
      for (int i = 0; i < kWidth; ++i)
        expected[row * kWidth + i] += tensor_product(grads, static_cast<size_t>(row) * kPanels * 64 + first, weight,
                                                     static_cast<size_t>(first) * kWidth + i, columns, 1, kWidth);
    }
  }
  EXPECT_EQ(grad_hidden, expected);
  for (int token = 0; token < kVocabulary; token += 37) {
    for (int i = 0; i < kWidth; ++i) {
      const float sum = tensor_product(grads, token, states, i, kRows, static_cast<size_t>(kPanels) * 64, kWidth);
      ASSERT_EQ(grad_head[token * kWidth + i], expected_head[token * kWidth + i] + sum) << token << ", " << i;
    }
  }
}

double ulp(float value) { return std::nextafter(std::abs(value), INFINITY) - std::abs(value); }

std::vector<TokenPick> picks() {
  std::vector<TokenPick> result;
  for (const TandemCudaPick& pick : kPicks) result.push_back({pick.row, pick.token});
  return result;
}

TEST(CudaHost, lm_head_and_its_gradient_give_the_bits_of_the_avx2_kernel) {
  Stream cpu = std::move(*Stream::cpu(2, Isa::kAvx2));
  const auto states = hidden(), weight = head();
  std::vector<bf16> packed(packed_size(kVocabulary, kWidth)), transposed(packed_size(kWidth, kVocabulary));
  ASSERT_TRUE(pack(cpu, weight.data(), kVocabulary, kWidth, packed.data()));
  ASSERT_TRUE(pack_transposed(cpu, weight.data(), kVocabulary, kWidth, transposed.data()));
  std::vector<float> logits(kRows * kPanels * 64), log_sum(kRows), logprobs(kPicks.size());
  std::vector<int32_t> argmax(kRows);
  std::vector<RunningSum> sums(kRows * kPanels);
  ASSERT_TRUE(kernels::lm_head(cpu,
                               {.hidden = states.data(),
                                .head = packed.data(),
                                .rows = kRows,
                                .width = kWidth,
                                .vocabulary = kVocabulary,
                                .logits = logits.data(),
                                .log_sum = log_sum.data(),
                                .argmax = argmax.data(),
                                .panel_sums = sums.data(),
                                .logit_scales = kScales.data()},
                               picks(), logprobs));
  HostMachine machine;
  const TandemCudaLmHead h = forward(machine);
  ASSERT_EQ(machine.run(h), 0);
  EXPECT_EQ(machine.fetch(h.logits, logits.size()), logits);
  EXPECT_EQ(machine.fetch(h.argmax, kRows), argmax);
  const auto panel_sums = machine.fetch(h.panel_sums, sums.size() * 2);
  for (size_t i = 0; i < sums.size(); ++i) {
    ASSERT_EQ(panel_sums[i * 2], sums[i].maximum);
    ASSERT_EQ(panel_sums[i * 2 + 1], sums[i].sum);
  }
  // Logarithms in double of two libraries, rounded to float: an ulp apart at most.
  const auto got = machine.fetch(h.log_sum, kRows), got_logprobs = machine.fetch(h.logprobs, kPicks.size());
  for (int row = 0; row < kRows; ++row) EXPECT_LE(std::abs(got[row] - log_sum[row]), ulp(log_sum[row]));
  for (size_t i = 0; i < kPicks.size(); ++i) {
    EXPECT_EQ(got_logprobs[i], logits[kPicks[i].row * kPanels * 64 + kPicks[i].token] - got[kPicks[i].row]);
  }

  auto grad_hidden = random_floats(kRows * kWidth, 3), grad_head = random_floats(kVocabulary * kWidth, 4);
  std::vector<float> entropy(kRows);
  ASSERT_TRUE(kernels::lm_head_backward(cpu,
                                        {.hidden = states.data(),
                                         .head = packed.data(),
                                         .head_transposed = transposed.data(),
                                         .log_sum = log_sum.data(),
                                         .rows = kRows,
                                         .width = kWidth,
                                         .vocabulary = kVocabulary,
                                         .grad_hidden = grad_hidden.data(),
                                         .grad_head = grad_head.data(),
                                         .logit_scales = kScales.data()},
                                        picks(), kGradients, entropy));
  const TandemCudaLmHeadBackward b = backward(machine, log_sum);
  ASSERT_EQ(machine.run(b), 0);
  EXPECT_EQ(machine.fetch(b.grad_hidden, grad_hidden.size()), grad_hidden);
  EXPECT_EQ(machine.fetch(b.grad_head, grad_head.size()), grad_head);
  EXPECT_EQ(machine.fetch(b.entropy, kRows), entropy);
  TandemCudaLmHeadBackward without_head = backward(machine, log_sum);
  without_head.grad_head = nullptr;
  ASSERT_EQ(machine.run(without_head), 0);
  EXPECT_EQ(machine.fetch(without_head.grad_hidden, grad_hidden.size()), grad_hidden);
}

// Some tokens of each row: two of different slabs, one alone, the picks of a row with others, all.
std::vector<uint64_t> kept_words() {
  std::vector<uint64_t> words(kRows * kPanels, 0);
  const std::vector<std::vector<int>> kept = {{5, 6, 4499}, {4200}, {0, 70, 71, 2000}, {}, {1, 64, 4499}, {4100, 4101}};
  for (int row = 0; row < kRows; ++row) {
    for (const int token : kept[row]) words[row * kPanels + token / 64] |= uint64_t{1} << (token % 64);
    if (kept[row].empty()) std::fill_n(words.begin() + row * kPanels, kPanels, ~uint64_t{0});
  }
  return words;
}

TEST(CudaHost, an_lm_head_over_kept_tokens_and_its_gradient_are_those_of_avx2) {
  Stream cpu = std::move(*Stream::cpu(1, Isa::kAvx2));
  const auto states = hidden(), weight = head();
  const auto kept = kept_words();
  std::vector<bf16> packed(packed_size(kVocabulary, kWidth)), transposed(packed_size(kWidth, kVocabulary));
  ASSERT_TRUE(pack(cpu, weight.data(), kVocabulary, kWidth, packed.data()));
  ASSERT_TRUE(pack_transposed(cpu, weight.data(), kVocabulary, kWidth, transposed.data()));
  std::vector<float> log_sum(kRows), logprobs(kPicks.size()), entropy(kRows);
  ASSERT_TRUE(kernels::lm_head(cpu,
                               {.hidden = states.data(),
                                .head = packed.data(),
                                .rows = kRows,
                                .width = kWidth,
                                .vocabulary = kVocabulary,
                                .log_sum = log_sum.data(),
                                .logit_scales = kScales.data(),
                                .kept = kept.data()},
                               picks(), logprobs));
  HostMachine machine;
  TandemCudaLmHead h = forward(machine);
  h.logits = h.panel_sums = nullptr;
  h.kept = machine.place(kept);
  ASSERT_EQ(machine.run(h), 0);
  const auto got = machine.fetch(h.log_sum, kRows), got_logprobs = machine.fetch(h.logprobs, kPicks.size());
  for (int row = 0; row < kRows; ++row) EXPECT_LE(std::abs(got[row] - log_sum[row]), ulp(log_sum[row])) << row;
  for (size_t i = 0; i < kPicks.size(); ++i) EXPECT_NEAR(got_logprobs[i], logprobs[i], 1e-5) << i;
  auto grad_hidden = random_floats(kRows * kWidth, 3), grad_head = random_floats(kVocabulary * kWidth, 4);
  ASSERT_TRUE(kernels::lm_head_backward(cpu,
                                        {.hidden = states.data(),
                                         .head = packed.data(),
                                         .head_transposed = transposed.data(),
                                         .log_sum = log_sum.data(),
                                         .rows = kRows,
                                         .width = kWidth,
                                         .vocabulary = kVocabulary,
                                         .grad_hidden = grad_hidden.data(),
                                         .grad_head = grad_head.data(),
                                         .logit_scales = kScales.data(),
                                         .kept = kept.data()},
                                        picks(), kGradients, entropy));
  TandemCudaLmHeadBackward b = backward(machine, log_sum);
  b.kept = machine.place(kept);
  ASSERT_EQ(machine.run(b), 0);
  EXPECT_EQ(machine.fetch(b.grad_hidden, grad_hidden.size()), grad_hidden);
  EXPECT_EQ(machine.fetch(b.grad_head, grad_head.size()), grad_head);
  EXPECT_EQ(machine.fetch(b.entropy, kRows), entropy);
}

Bytes kept_lm_head_case(Machine& machine) {
  TandemCudaLmHead h = forward(machine);
  h.logits = h.panel_sums = nullptr;
  h.kept = machine.place(kept_words());
  EXPECT_EQ(machine.run(h), 0);
  TandemCudaLmHeadBackward b = backward(machine, std::vector<float>(kRows, 9.0f));
  b.kept = h.kept;
  EXPECT_EQ(machine.run(b), 0);
  Bytes bytes;
  append(bytes, machine.fetch(h.log_sum, kRows));
  append(bytes, machine.fetch(h.argmax, kRows));
  append(bytes, machine.fetch(h.logprobs, kPicks.size()));
  append(bytes, machine.fetch(b.grad_hidden, kRows * kWidth));
  append(bytes, machine.fetch(b.grad_head, kVocabulary * kWidth));
  append(bytes, machine.fetch(b.entropy, kRows));
  return bytes;
}
TANDEM_CUDA_CASE_TESTS(kept_lm_head)
Bytes tensor_kept_lm_head_case(Machine& machine) { return kept_lm_head_case(machine); }
TANDEM_CUDA_TENSOR_TESTS(tensor_kept_lm_head)

TEST(CudaHost, a_row_of_lm_head_has_the_same_bits_alone_and_among_others) {
  HostMachine machine;
  const TandemCudaLmHead all = forward(machine);
  ASSERT_EQ(machine.run(all), 0);
  const auto log_sum = machine.fetch(all.log_sum, kRows), logprobs = machine.fetch(all.logprobs, kPicks.size());
  for (size_t i = 0; i < kPicks.size(); ++i) {
    TandemCudaLmHead one = forward(machine);
    one.hidden += kPicks[i].row * kWidth;
    one.logit_scales += kPicks[i].row;
    one.picks = machine.place(std::vector<TandemCudaPick>{{0, kPicks[i].token}});
    one.rows = 1;
    one.pick_count = 1;
    one.logits = one.panel_sums = nullptr;
    one.argmax = nullptr;
    ASSERT_EQ(machine.run(one), 0);
    EXPECT_EQ(machine.fetch(one.log_sum, 1)[0], log_sum[kPicks[i].row]);
    EXPECT_EQ(machine.fetch(one.logprobs, 1)[0], logprobs[i]);
  }
}

TEST(CudaHost, a_pick_outside_the_vocabulary_is_nan_and_lm_head_refuses_what_does_not_fit) {
  HostMachine machine;
  TandemCudaLmHead h = forward(machine);
  h.picks = machine.place(std::vector<TandemCudaPick>{{0, kVocabulary}, {kRows, 0}, {0, -1}});
  h.pick_count = 3;
  ASSERT_EQ(machine.run(h), 0);
  for (const float logprob : machine.fetch(h.logprobs, 3)) EXPECT_TRUE(std::isnan(logprob));
  h.workspace_bytes = kRows * (kPanels + 2) * 12 - 1;
  EXPECT_EQ(machine.run(h), kTandemCudaWorkspace);
  h.vocabulary = 0;
  EXPECT_EQ(machine.run(h), kTandemCudaSize);
  h.picks = nullptr;
  EXPECT_EQ(machine.run(h), kTandemCudaNull);
  TandemCudaLmHeadBackward b = backward(machine, std::vector<float>(kRows, 9.0f));
  b.workspace_bytes = kRows * (2048 * 2 + kPanels * 4) - 1;
  EXPECT_EQ(machine.run(b), kTandemCudaWorkspace);
}

}  // namespace
}  // namespace tandem::kernels::cuda
