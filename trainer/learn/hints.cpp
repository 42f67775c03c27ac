#include "trainer/learn/hints.h"

#include <algorithm>

namespace tandem::trainer {

namespace {

struct HintedPrompt {
  size_t begin = 0;     // of the segment
  size_t replaced = 0;  // tokens there that the hint stands in place of
};

// The prompts that the hint stands in: those of segments that begin with the same task. Behind the task a later
// segment has its summary, and a tokenizer may have joined its last token with what follows: nothing is replaced then.
std::vector<HintedPrompt> hinted_prompts(const Sample& sample) {
  const PromptHint& hint = sample.hint;
  std::vector<HintedPrompt> prompts = {{0, hint.replaced}};
  const auto tokens = std::span(sample.tokens);
  const auto task = tokens.first(hint.at), replaced = tokens.subspan(hint.at, hint.replaced);
  for (const uint32_t begin : sample.later_segments) {
    const auto rest = tokens.subspan(begin);
    if (rest.size() <= hint.end() || !std::ranges::equal(rest.first(hint.at), task)) continue;
    const bool is_same = std::ranges::equal(rest.subspan(hint.at, hint.replaced), replaced);
    prompts.push_back({begin, is_same ? hint.replaced : 0});
  }
  return prompts;
}

}  // namespace

Sample behind_hint(const Sample& sample) {
  Sample out{.group = sample.group, .part = sample.part, .kept = {.vocabulary = sample.kept.vocabulary}};
  const auto prompts = hinted_prompts(sample);
  const auto kept = sample.kept.sets();
  const auto put = [&](int32_t token, bool trained, float logprob, uint64_t version) {
    out.tokens.push_back(token);
    out.trained.push_back(trained ? 1 : 0);
    out.logprobs.push_back(logprob);
    out.versions.push_back(version);
  };
  size_t next = 0, skipped_to = 0;
  for (size_t i = 0; i < sample.tokens.size(); ++i) {
    if (std::ranges::binary_search(sample.later_segments, static_cast<uint32_t>(i)))
      out.later_segments.push_back(static_cast<uint32_t>(out.tokens.size()));
    if (next < prompts.size() && i == prompts[next].begin + sample.hint.at) {
      for (const int32_t token : sample.hint.tokens) {
        put(token, false, 0, 0);
        out.kept.append({});
      }
      skipped_to = i + prompts[next].replaced;
      ++next;
    }
    if (i < skipped_to) continue;
    put(sample.tokens[i], sample.trained[i] != 0, sample.logprobs[i], sample.versions[i]);
    out.kept.append(kept.empty() ? KeptTokens() : kept[i]);
  }
  return out;
}

std::vector<Sample> taught_by_hints(std::span<const Sample> samples, std::span<const std::vector<double>> logprobs) {
  std::vector<Sample> taught(samples.begin(), samples.end());
  size_t row = 0;
  for (Sample& sample : taught) {
    if (sample.part == kDemonstrationPart) continue;
    sample.teacher_logprobs = sample.logprobs;
    if (sample.hint.empty()) continue;
    size_t place = 0;
    for (size_t i = 1; i < sample.tokens.size(); ++i)
      if (sample.trained[i]) sample.teacher_logprobs[i] = static_cast<float>(logprobs[row][place++]);
    ++row;
  }
  return taught;
}

double hinted_share(std::span<const Sample> samples) {
  const auto hinted = std::ranges::count_if(samples, [](const Sample& s) { return !s.hint.empty(); });
  return samples.empty() ? 0 : static_cast<double>(hinted) / static_cast<double>(samples.size());
}

}  // namespace tandem::trainer
