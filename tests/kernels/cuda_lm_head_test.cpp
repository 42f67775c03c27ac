#include <cmath>

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
                                .panel_sums = sums.data()},
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
                                         .grad_head = grad_head.data()},
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

TEST(CudaHost, a_row_of_lm_head_has_the_same_bits_alone_and_among_others) {
  HostMachine machine;
  const TandemCudaLmHead all = forward(machine);
  ASSERT_EQ(machine.run(all), 0);
  const auto log_sum = machine.fetch(all.log_sum, kRows), logprobs = machine.fetch(all.logprobs, kPicks.size());
  for (size_t i = 0; i < kPicks.size(); ++i) {
    TandemCudaLmHead one = forward(machine);
    one.hidden += kPicks[i].row * kWidth;
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
