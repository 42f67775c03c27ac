// Distributions of which sampling keeps a part: the same bits where they are drawn and where they are learned, formulas
// and gradients as in float64.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <numeric>

#include "base/file.h"
#include "base/json.h"
#include "base/text.h"
#include "kernels/lm_head.h"
#include "kernels/sampling.h"
#include "tests/kernels/support.h"

namespace tandem::kernels {
namespace {

class KeptTokens : public EachIsa {};
FOR_EACH_ISA(KeptTokens);

constexpr int kRows = 33, kWidth = 32, kVocabulary = 9000;  // three slabs, the last panel partly padding
constexpr size_t kWords = (kVocabulary + 63) / 64;

std::vector<std::vector<int32_t>> sets_of_rows() {
  Random random(3);
  std::vector<std::vector<int32_t>> sets(kRows);
  for (int row = 0; row < kRows; ++row) {
    if (row % 8 == 7) continue;  // all
    const size_t count = row % 8 == 0 ? 1 : row % 8 == 1 ? 4096 : 2 + random.below(40);
    std::vector<int32_t> ids(kVocabulary);
    std::iota(ids.begin(), ids.end(), 0);
    for (size_t i = 0; i < count; ++i) std::swap(ids[i], ids[i + random.below(kVocabulary - i)]);
    ids.resize(count);
    if (row % 8 == 2) ids = {8999};        // alone in the last panel
    if (row % 8 == 3) ids = {0, 1, 8998};  // nothing in the slab between
    std::sort(ids.begin(), ids.end());
    sets[static_cast<size_t>(row)] = ids;
  }
  return sets;
}

std::vector<uint64_t> masks_of(const std::vector<std::vector<int32_t>>& sets) {
  std::vector<uint64_t> masks(sets.size() * kWords, 0);
  for (size_t row = 0; row < sets.size(); ++row) {
    if (sets[row].empty()) std::fill_n(masks.begin() + static_cast<long>(row * kWords), kWords, ~uint64_t{0});
    for (const int32_t id : sets[row]) masks[row * kWords + static_cast<size_t>(id) / 64] |= uint64_t{1} << (id % 64);
  }
  return masks;
}

template <typename T>
struct Head {
  std::vector<T> hidden, packed;
};

template <typename T>
Head<T> head_of(Stream& cpu) {
  std::vector<T> weight;
  Head<T> made;
  if constexpr (sizeof(T) == sizeof(float)) {
    for (const bf16 x : random_bf16(kRows * kWidth, 7)) made.hidden.push_back(to_float(x));
    for (const bf16 x : random_bf16(kVocabulary * kWidth, 8, 0.4f)) weight.push_back(to_float(x));
    made.packed.resize(padded_vocabulary(kVocabulary) * kWidth);
  } else {
    made.hidden = random_bf16(kRows * kWidth, 7);
    weight = random_bf16(kVocabulary * kWidth, 8, 0.4f);
    made.packed.resize(packed_size(kVocabulary, kWidth));
  }
  EXPECT_TRUE(pack(cpu, weight.data(), kVocabulary, kWidth, made.packed.data()));
  return made;
}

// What a sampler makes of stored logits and what a trainer computes without them; rows alone and among others.
template <typename T>
void expect_same_bits(Stream& cpu, Stream& one) {
  const Head<T> head = head_of<T>(cpu);
  const auto sets = sets_of_rows();
  const auto masks = masks_of(sets);
  const size_t padded = padded_vocabulary(kVocabulary);
  std::vector<float> scales, logits(kRows * padded), log_sum(kRows), of_kept(kRows);
  for (int row = 0; row < kRows; ++row) scales.push_back(logit_scale_at(0.5f + 0.25f * static_cast<float>(row % 4)));
  BasicLmHead<T> h{.hidden = head.hidden.data(),
                   .head = head.packed.data(),
                   .rows = kRows,
                   .width = kWidth,
                   .vocabulary = kVocabulary,
                   .logits = logits.data(),
                   .log_sum = log_sum.data(),
                   .logit_scales = scales.data()};
  ASSERT_TRUE(lm_head(cpu, h, {}, {}));
  std::vector<TokenPick> picks;
  for (int row = 0; row < kRows; ++row) {
    const auto& kept = sets[static_cast<size_t>(row)];
    picks.push_back({row, kept.empty() ? 100 : kept.front()});
    picks.push_back({row, kept.empty() ? 8999 : kept.back()});
  }
  std::vector<float> logprobs(picks.size());
  h.logits = nullptr;
  h.log_sum = of_kept.data();
  h.kept = masks.data();
  ASSERT_TRUE(lm_head(cpu, h, picks, logprobs));
  for (int row = 0; row < kRows; ++row) {
    const auto& kept = sets[static_cast<size_t>(row)];
    const auto own = std::span(logits).subspan(static_cast<size_t>(row) * padded, kVocabulary);
    const float expected = kept.empty() ? log_sum[row] : *kept_log_sum(one, own, kept);
    EXPECT_EQ(of_kept[row], expected) << row;
    for (const size_t i : {static_cast<size_t>(row) * 2, static_cast<size_t>(row) * 2 + 1})
      EXPECT_EQ(logprobs[i], own[static_cast<size_t>(picks[i].token)] - expected) << row;
    double total = 0;
    const auto add = [&](int32_t id) { total += std::exp(static_cast<double>(own[static_cast<size_t>(id)])); };
    for (int32_t id = 0; kept.empty() && id < kVocabulary; ++id) add(id);
    for (const int32_t id : kept) add(id);
    EXPECT_NEAR(of_kept[row], std::log(total), 1e-5) << row;
    BasicLmHead<T> alone = h;
    float alone_sum = 0, alone_logprob = 0;
    alone.hidden += static_cast<size_t>(row) * kWidth;
    alone.rows = 1;
    alone.log_sum = &alone_sum;
    alone.logit_scales = &scales[static_cast<size_t>(row)];
    alone.kept = kept.empty() ? nullptr : masks.data() + static_cast<size_t>(row) * kWords;
    const TokenPick pick{0, picks[static_cast<size_t>(row) * 2].token};
    ASSERT_TRUE(lm_head(one, alone, std::span(&pick, 1), std::span(&alone_logprob, 1)));
    EXPECT_EQ(alone_sum, of_kept[row]) << row;
    EXPECT_EQ(alone_logprob, logprobs[static_cast<size_t>(row) * 2]) << row;
  }
}

TEST_P(KeptTokens, have_the_bits_of_the_sampler_in_the_trainer_whatever_lies_beside_them) {
  Stream cpu = stream(2), one = stream(1);
  expect_same_bits<bf16>(cpu, one);
  expect_same_bits<float>(cpu, one);
}

TEST_P(KeptTokens, that_are_all_tokens_change_no_bit_forward_or_backward) {
  Stream cpu = stream(2);
  const Head<bf16> head = head_of<bf16>(cpu);
  const auto weight = random_bf16(kVocabulary * kWidth, 8, 0.4f);
  std::vector<bf16> transposed(packed_size(kWidth, kVocabulary));
  ASSERT_TRUE(pack_transposed(cpu, weight.data(), kVocabulary, kWidth, transposed.data()));
  const auto all = masks_of(std::vector<std::vector<int32_t>>(kRows));
  const std::vector<TokenPick> picks = {{0, 4}, {3, 8999}, {32, 4100}};
  const std::vector<float> gradients = {1, -2, 0.5f};
  std::vector<std::vector<float>> results;
  for (const uint64_t* kept : {static_cast<const uint64_t*>(nullptr), all.data()}) {
    std::vector<float> log_sum(kRows), logprobs(picks.size()), grad_hidden(kRows * kWidth), entropy(kRows),
        grad_head(kVocabulary * kWidth);
    ASSERT_TRUE(lm_head(cpu,
                        {.hidden = head.hidden.data(),
                         .head = head.packed.data(),
                         .rows = kRows,
                         .width = kWidth,
                         .vocabulary = kVocabulary,
                         .log_sum = log_sum.data(),
                         .kept = kept},
                        picks, logprobs));
    ASSERT_TRUE(lm_head_backward(cpu,
                                 {.hidden = head.hidden.data(),
                                  .head = head.packed.data(),
                                  .head_transposed = transposed.data(),
                                  .log_sum = log_sum.data(),
                                  .rows = kRows,
                                  .width = kWidth,
                                  .vocabulary = kVocabulary,
                                  .grad_hidden = grad_hidden.data(),
                                  .grad_head = grad_head.data(),
                                  .kept = kept},
                                 picks, gradients, entropy));
    for (const auto* part : {&log_sum, &logprobs, &grad_hidden, &grad_head, &entropy}) results.push_back(*part);
  }
  for (size_t i = 0; i < 5; ++i) EXPECT_EQ(results[i], results[i + 5]) << i;
}

TEST_P(KeptTokens, agree_with_float64_and_no_other_token_learns) {
  Stream cpu = stream(2);
  const std::string lines = *read_file(TANDEM_SOURCE_DIR "/tests/golden/kept_tokens.jsonl");  // make_kept_tokens.py
  int seen = 0;
  for (const auto line : split(trim(lines), '\n')) {
    const Json c = *parse_json(line);
    const int vocabulary = c["vocabulary"].get<int>(), width = c["width"].get<int>();
    std::vector<bf16> state, weight;
    for (const auto& x : c["state"]) state.push_back(to_bf16(x.get<float>() / 64));
    for (const auto& row : c["head"])
      for (const auto& x : row) weight.push_back(to_bf16(x.get<float>() / 256));
    std::vector<bf16> head(packed_size(vocabulary, width)), transposed(packed_size(width, vocabulary));
    ASSERT_TRUE(pack(cpu, weight.data(), vocabulary, width, head.data()));
    ASSERT_TRUE(pack_transposed(cpu, weight.data(), vocabulary, width, transposed.data()));
    const auto kept = c["kept"].get<std::vector<int32_t>>();
    std::vector<uint64_t> mask(padded_vocabulary(vocabulary) / 64, 0);
    for (const int32_t id : kept) mask[static_cast<size_t>(id) / 64] |= uint64_t{1} << (id % 64);
    const uint64_t* const given = kept.empty() ? nullptr : mask.data();
    const float scale = c["scale"].get<float>(), gradient = c["gradient"].get<float>();
    const TokenPick pick{0, c["token"].get<int32_t>()};
    float log_sum = 0, logprob = 0, entropy = 0;
    ASSERT_TRUE(lm_head(cpu,
                        {.hidden = state.data(),
                         .head = head.data(),
                         .rows = 1,
                         .width = width,
                         .vocabulary = vocabulary,
                         .log_sum = &log_sum,
                         .logit_scales = &scale,
                         .kept = given},
                        std::span(&pick, 1), std::span(&logprob, 1)));
    EXPECT_NEAR(log_sum, c["log_sum"].get<double>(), 2e-5);
    EXPECT_NEAR(logprob, c["logprob"].get<double>(), 2e-5);
    std::vector<float> grad_state(static_cast<size_t>(width)), grad_head(weight.size());
    ASSERT_TRUE(lm_head_backward(cpu,
                                 {.hidden = state.data(),
                                  .head = head.data(),
                                  .head_transposed = transposed.data(),
                                  .log_sum = &log_sum,
                                  .rows = 1,
                                  .width = width,
                                  .vocabulary = vocabulary,
                                  .grad_hidden = grad_state.data(),
                                  .grad_head = grad_head.data(),
                                  .logit_scales = &scale,
                                  .kept = given},
                                 std::span(&pick, 1), std::span(&gradient, 1), std::span(&entropy, 1)));
    EXPECT_NEAR(entropy, c["entropy"].get<double>(), 1e-4);
    std::vector<double> expected;
    for (const auto& x : c["grad_logits"])
      for (const bf16 s : state) expected.push_back(x.get<double>() * to_float(s));
    const auto of_state = c["grad_state"].get<std::vector<double>>();
    double largest = 0;
    for (const double x : expected) largest = std::max(largest, std::abs(x));
    // A gradient of a logit is rounded to bf16 once.
    for (size_t i = 0; i < expected.size(); ++i) EXPECT_NEAR(grad_head[i], expected[i], largest * 0x1p-8 + 1e-6);
    for (size_t i = 0; i < of_state.size(); ++i) EXPECT_NEAR(grad_state[i], of_state[i], 0.02) << line.substr(0, 80);
    for (int32_t v = 0; v < vocabulary && !kept.empty(); ++v) {
      if (std::binary_search(kept.begin(), kept.end(), v)) continue;
      for (int i = 0; i < width; ++i) EXPECT_EQ(grad_head[static_cast<size_t>(v * width + i)], 0.0f) << v;
    }
    ++seen;
  }
  EXPECT_EQ(seen, 32);
}

TEST_P(KeptTokens, are_what_a_draw_was_made_from) {
  Stream cpu = stream(1);
  const Head<bf16> head = head_of<bf16>(cpu);
  const size_t padded = padded_vocabulary(kVocabulary), panels = padded / kPanelColumns;
  std::vector<float> logits(kRows * padded), log_sum(kRows);
  std::vector<RunningSum> sums(kRows * panels);
  ASSERT_TRUE(lm_head(cpu,
                      {.hidden = head.hidden.data(),
                       .head = head.packed.data(),
                       .rows = kRows,
                       .width = kWidth,
                       .vocabulary = kVocabulary,
                       .logits = logits.data(),
                       .log_sum = log_sum.data(),
                       .panel_sums = sums.data()},
                      {}, {}));
  const std::vector<SamplingSettings> all_settings = {
      {}, {.top_k = 1}, {.top_k = 50}, {.top_p = 0.9f}, {.min_p = 0.1f}, {.top_k = 20, .top_p = 0.8f, .min_p = 0.01f}};
  for (int row = 0; row < kRows; ++row) {
    const auto own = std::span(logits).subspan(static_cast<size_t>(row) * padded, kVocabulary);
    const auto of_panels = std::span(sums).subspan(static_cast<size_t>(row) * panels, panels);
    for (const SamplingSettings& settings : all_settings) {
      std::vector<int32_t> kept;
      const Sampled drawn = sample_kept(own, of_panels, log_sum[row], settings, 5, row, kept);
      SamplingSettings bounded = settings;
      if (settings.cuts() && settings.top_k == 0) bounded.top_k = kMostKept;
      EXPECT_EQ(drawn.token, sample(own, of_panels, log_sum[row], bounded, 5, row).token);
      EXPECT_EQ(kept.empty(), settings.plain());
      if (kept.empty()) continue;
      EXPECT_TRUE(std::is_sorted(kept.begin(), kept.end()));
      EXPECT_TRUE(std::binary_search(kept.begin(), kept.end(), drawn.token));
      EXPECT_LE(kept.size(), static_cast<size_t>(bounded.top_k));
      const float of_kept = own[static_cast<size_t>(drawn.token)] - *kept_log_sum(cpu, own, kept);
      EXPECT_NEAR(of_kept, drawn.sampling_logprob, 1e-4);
    }
  }
  // A flat distribution keeps so many at most.
  std::vector<int32_t> kept;
  const std::vector<float> flat(kVocabulary, 1);
  (void)sample_kept(flat, sums, 0, {.top_p = 0.99f}, 5, 1, kept);
  EXPECT_LE(kept.size(), static_cast<size_t>(kMostKept));
  EXPECT_GT(kept.size(), static_cast<size_t>(kMostKept) * 9 / 10);
  EXPECT_EQ(kept_log_sum(cpu, flat, {}).error().code(), Code::kInvalid);
  for (const std::vector<int32_t>& wrong : {std::vector<int32_t>{2, 1}, {3, 3}, {-1}, {kVocabulary}})
    EXPECT_FALSE(kept_log_sum(cpu, flat, wrong));
}

}  // namespace
}  // namespace tandem::kernels
