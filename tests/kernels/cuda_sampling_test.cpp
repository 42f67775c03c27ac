#include <array>
#include <cmath>
#include <span>

#include "kernels/sampling.h"
#include "tests/kernels/cuda_machines.h"

namespace tandem::kernels::cuda {
namespace {

constexpr int kRows = 600, kVocabulary = 300, kPanels = 5, kWidth = 16, kMaskWords = 5;

std::vector<float> temperatures() {
  std::vector<float> values(kRows);
  for (int row = 0; row < kRows; ++row) values[row] = row % 4 == 0 ? 0 : row % 4 == 1 ? 0.7f : row % 4 == 2 ? 1 : 1.5f;
  return values;
}
std::vector<uint64_t> seeds() {
  std::vector<uint64_t> values(kRows);
  for (int row = 0; row < kRows; ++row) values[row] = 0x123456789abcdefull * (row % 5 + 1);
  return values;
}
std::vector<uint64_t> positions() {
  std::vector<uint64_t> values(kRows);
  for (int row = 0; row < kRows; ++row) values[row] = row;
  return values;
}

// Rows that are cut, and held to masks: every way of one with every way of the others.
struct Cuts {
  std::vector<int32_t> top_k, mask_of;
  std::vector<float> top_p, min_p;
  std::vector<uint64_t> masks = std::vector<uint64_t>(4 * kMaskWords);
};
constexpr int kEmptyMask = 3;
Cuts cuts() {
  Cuts cuts;
  for (int row = 0; row < kRows; ++row) {
    cuts.top_k.push_back(std::array{0, 1, 7, 1000}[row / 4 % 4]);
    cuts.top_p.push_back(std::array{1.0f, 0.5f, 0.9f}[row / 16 % 3]);
    cuts.min_p.push_back(std::array{0.0f, 0.3f}[row / 48 % 2]);
    cuts.mask_of.push_back(row / 96 % 5 - 1);
  }
  for (int token = 0; token < kVocabulary; ++token) {
    const std::array<bool, kEmptyMask> allowed = {token % 3 == 0, token == 77, token >= 64 && token < 130};
    for (int mask = 0; mask < kEmptyMask; ++mask)
      cuts.masks[mask * kMaskWords + token / 64] |= uint64_t{allowed[mask]} << (token % 64);
  }
  return cuts;
}

// Rows whose logits are no numbers, where a test wants some.
bool is_wrong(int row) { return row % 5 == 1; }

// The head of some rows, and what is drawn from it.
struct Drawn {
  explicit Drawn(Machine& machine, const Cuts* cuts = nullptr, bool keeps = false, bool has_wrong = false) {
    auto hidden = random_bf16(kRows * kWidth, 1);
    for (int row = 0; row < kRows && has_wrong; ++row)
      if (is_wrong(row)) hidden[row * kWidth + 3] = to_bf16(row % 2 == 0 ? std::nanf("") : HUGE_VALF);
    const TandemCudaLmHead h{.hidden = machine.place(hidden),
                             .head = machine.place(random_bf16(kVocabulary * kWidth, 2)),
                             .logits = machine.room<float>(kRows * kPanels * 64),
                             .log_sum = machine.room<float>(kRows),
                             .panel_sums = machine.room<float>(kRows * kPanels * 2),
                             .rows = kRows,
                             .width = kWidth,
                             .vocabulary = kVocabulary,
                             .workspace = machine.room<char>(kRows * (kPanels + 1) * 12),
                             .workspace_bytes = kRows * (kPanels + 1) * 12};
    EXPECT_EQ(machine.run(h), 0);
    const TandemCudaSample s{.logits = h.logits,
                             .panel_sums = h.panel_sums,
                             .log_sum = h.log_sum,
                             .temperatures = machine.place(temperatures()),
                             .top_k = cuts ? machine.place(cuts->top_k) : nullptr,
                             .top_p = cuts ? machine.place(cuts->top_p) : nullptr,
                             .min_p = cuts ? machine.place(cuts->min_p) : nullptr,
                             .masks = cuts ? machine.place(cuts->masks) : nullptr,
                             .mask_of = cuts ? machine.place(cuts->mask_of) : nullptr,
                             .seeds = machine.place(seeds()),
                             .positions = machine.place(positions()),
                             .tokens = machine.room<int32_t>(kRows),
                             .logprobs = machine.room<float>(kRows),
                             .sampling_logprobs = machine.room<float>(kRows),
                             .rows = kRows,
                             .vocabulary = kVocabulary,
                             .workspace = machine.room<double>(kRows * kPanels * 64 * 2),
                             .workspace_bytes = kRows * kPanels * 64 * 12,
                             .kept = keeps ? machine.room<uint64_t>(kRows * kMaskWords) : nullptr};
    EXPECT_EQ(machine.run(s), 0);
    if (keeps) kept = machine.fetch(s.kept, kRows * kMaskWords);
    logits = machine.fetch(h.logits, kRows * kPanels * 64);
    log_sum = machine.fetch(h.log_sum, kRows);
    panel_sums = machine.fetch(h.panel_sums, kRows * kPanels * 2);
    tokens = machine.fetch(s.tokens, kRows);
    logprobs = machine.fetch(s.logprobs, kRows);
    sampling_logprobs = machine.fetch(s.sampling_logprobs, kRows);
  }
  std::vector<float> logits, log_sum, panel_sums, logprobs, sampling_logprobs;
  std::vector<int32_t> tokens;
  std::vector<uint64_t> kept;
};

Cuts cuts_alone() {
  Cuts alone = cuts();
  std::ranges::fill(alone.mask_of, -1);
  return alone;
}
Bytes sample_kept_case(Machine& machine) {
  const Cuts all = cuts_alone();
  const Drawn drawn(machine, &all, true);
  Bytes bytes;
  append(bytes, drawn.tokens);
  append(bytes, drawn.logprobs);
  append(bytes, drawn.sampling_logprobs);
  append(bytes, drawn.kept);
  return bytes;
}
TANDEM_CUDA_CASE_TESTS(sample_kept)

// To an ulp of the log-sum, whose logarithm is another library's.
TEST(CudaHost, keeps_the_tokens_that_the_cpu_keeps_and_has_the_logprob_among_them) {
  HostMachine machine;
  Stream cpu = std::move(*Stream::cpu(1, Isa::kAvx2));
  const Cuts all = cuts_alone();
  const Drawn drawn(machine, &all, true), plain(machine, &all);
  EXPECT_EQ(drawn.tokens, plain.tokens);
  int cut = 0;
  for (int row = 0; row < kRows; ++row) {
    const SamplingSettings settings{
        .temperature = temperatures()[row], .top_k = all.top_k[row], .top_p = all.top_p[row], .min_p = all.min_p[row]};
    std::vector<int32_t> kept;
    for (int token = 0; token < kVocabulary; ++token) {
      if ((drawn.kept[row * kMaskWords + token / 64] >> (token % 64) & 1) != 0) kept.push_back(token);
    }
    const std::span<const float> logits(&drawn.logits[row * kPanels * 64], kVocabulary);
    if (settings.temperature == 0 || !settings.cuts()) {
      EXPECT_EQ(kept.size(), static_cast<size_t>(kVocabulary)) << row;
      EXPECT_EQ(drawn.logprobs[row], plain.logprobs[row]) << row;
      continue;
    }
    std::vector<RunningSum> panels(kPanels);
    std::vector<int32_t> expected;
    (void)kernels::sample_kept(logits, panels, 0, settings, seeds()[row], positions()[row], expected);
    if (expected.empty()) expected = kept;  // all stay
    EXPECT_EQ(kept, expected) << row;
    EXPECT_NEAR(drawn.logprobs[row], logits[drawn.tokens[row]] - *kernels::kept_log_sum(cpu, logits, kept), 1e-5)
        << row;
    cut += kept.size() < static_cast<size_t>(kVocabulary) ? 1 : 0;
  }
  EXPECT_GT(cut, kRows / 4);
}

Bytes sample_case(Machine& machine) {
  const Drawn drawn(machine);
  Bytes bytes;
  append(bytes, drawn.tokens);
  append(bytes, drawn.logprobs);
  append(bytes, drawn.sampling_logprobs);
  return bytes;
}
TANDEM_CUDA_CASE_TESTS(sample)
Bytes sample_cut_case(Machine& machine) {
  const Cuts all = cuts();
  const Drawn drawn(machine, &all);
  Bytes bytes;
  append(bytes, drawn.tokens);
  append(bytes, drawn.logprobs);
  append(bytes, drawn.sampling_logprobs);
  return bytes;
}
TANDEM_CUDA_CASE_TESTS(sample_cut)

TEST(CudaHost, draws_the_tokens_that_the_cpu_draws_at_every_temperature) {
  HostMachine machine;
  const Drawn drawn(machine);
  for (int row = 0; row < kRows; ++row) {
    std::vector<RunningSum> panels(kPanels);
    for (int panel = 0; panel < kPanels; ++panel) {
      const float* sums = &drawn.panel_sums[(row * kPanels + panel) * 2];
      panels[panel] = {sums[0], sums[1]};
    }
    const Sampled expected =
        kernels::sample({&drawn.logits[row * kPanels * 64], kVocabulary}, panels, drawn.log_sum[row],
                        {.temperature = temperatures()[row]}, seeds()[row], positions()[row]);
    EXPECT_EQ(drawn.tokens[row], expected.token) << row;
    EXPECT_EQ(drawn.logprobs[row], expected.logprob) << row;
    // A logarithm of a sum in double, by two libraries.
    EXPECT_FLOAT_EQ(drawn.sampling_logprobs[row], expected.sampling_logprob) << row;
  }
}

TEST(CudaHost, draws_the_tokens_that_the_cpu_draws_cut_and_masked) {
  HostMachine machine;
  const Cuts all = cuts();
  const Drawn drawn(machine, &all);
  int empty = 0;
  for (int row = 0; row < kRows; ++row) {
    const std::span<const float> logits(&drawn.logits[row * kPanels * 64], kVocabulary);
    const int mask = all.mask_of[row];
    if (mask == kEmptyMask) {
      ++empty;
      EXPECT_EQ(drawn.tokens[row], -1) << row;
      continue;
    }
    const SamplingSettings settings = {temperatures()[row], all.top_k[row], all.top_p[row], all.min_p[row]};
    std::vector<RunningSum> panels(kPanels);
    for (int panel = 0; panel < kPanels; ++panel) {
      const float* sums = &drawn.panel_sums[(row * kPanels + panel) * 2];
      panels[panel] = {sums[0], sums[1]};
    }
    const Sampled expected =
        mask < 0 ? kernels::sample(logits, panels, drawn.log_sum[row], settings, seeds()[row], positions()[row])
                 : kernels::sample_allowed(logits, std::span(all.masks).subspan(mask * kMaskWords, kMaskWords),
                                           drawn.log_sum[row], settings, seeds()[row], positions()[row]);
    EXPECT_EQ(drawn.tokens[row], expected.token) << row;
    EXPECT_EQ(drawn.logprobs[row], expected.logprob) << row;
    EXPECT_NEAR(drawn.sampling_logprobs[row], expected.sampling_logprob, 1e-6f) << row;
  }
  EXPECT_GT(empty, 0);
}

// A token that is none was returned, or memory that nobody had written was read.
TEST(CudaHost, draws_from_what_is_no_distribution_a_token_that_there_is_with_a_logprob_of_nan) {
  HostMachine machine;
  const Cuts all = cuts();
  for (const bool keeps : {false, true}) {
    const Cuts alone = cuts_alone();
    const Cuts& own = keeps ? alone : all;
    const Drawn drawn(machine, &own, keeps, true);
    for (int row = 0; row < kRows; ++row) {
      const int mask = own.mask_of[row];
      if (!is_wrong(row) || mask == kEmptyMask) continue;
      ASSERT_FALSE(std::isfinite(drawn.log_sum[row])) << row;
      const int first = mask == 1 ? 77 : mask == 2 ? 64 : 0;
      EXPECT_EQ(drawn.tokens[row], first) << row;
      EXPECT_TRUE(std::isnan(drawn.logprobs[row]) && std::isnan(drawn.sampling_logprobs[row])) << row;
      const std::span<const float> logits(&drawn.logits[row * kPanels * 64], kVocabulary);
      const SamplingSettings settings = {temperatures()[row], own.top_k[row], own.top_p[row], own.min_p[row]};
      std::vector<RunningSum> panels(kPanels);
      for (int panel = 0; panel < kPanels; ++panel) {
        const float* sums = &drawn.panel_sums[(row * kPanels + panel) * 2];
        panels[panel] = {sums[0], sums[1]};
      }
      // With the sum that is none, and with one that hides it.
      for (const float log_sum : {drawn.log_sum[row], 0.0f}) {
        const Sampled of_cpu =
            mask < 0 ? kernels::sample(logits, panels, log_sum, settings, seeds()[row], positions()[row])
                     : kernels::sample_allowed(logits, std::span(own.masks).subspan(mask * kMaskWords, kMaskWords),
                                               log_sum, settings, seeds()[row], positions()[row]);
        EXPECT_TRUE(of_cpu.token >= 0 && of_cpu.token < kVocabulary) << row;
        if (log_sum != 0) {
          EXPECT_EQ(of_cpu.token, first) << row;
          EXPECT_TRUE(std::isnan(of_cpu.logprob) && std::isnan(of_cpu.sampling_logprob)) << row;
        }
        if (mask >= 0 || settings.temperature == 0) continue;
        std::vector<int32_t> kept;
        EXPECT_EQ(kernels::sample_kept(logits, panels, log_sum, settings, seeds()[row], positions()[row], kept).token,
                  of_cpu.token)
            << row;
      }
    }
  }
}

TEST(CudaHost, sampling_refuses_null_pointers) {
  HostMachine machine;
  EXPECT_EQ(machine.run(TandemCudaSample{}), kTandemCudaNull);
}

}  // namespace
}  // namespace tandem::kernels::cuda
